// The values of fields as JSON, and descriptions of valid values.
#include "settings/values.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "settings/fields.h"

namespace trident {
namespace config_detail {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const std::vector<DataSource>& sources) {
  ordered_json list = ordered_json::array();
  for (const DataSource& source : sources) {
    list.push_back({{"path", source.path}, {"weight", source.weight}});
  }
  return list;
}

ordered_json to_json(const std::vector<ValidationSet>& sets) {
  if (sets.size() == 1 && sets[0].name.empty()) return to_json(sets[0].sources);
  ordered_json named = ordered_json::object();
  for (const ValidationSet& set : sets) named[set.name] = to_json(set.sources);
  return named;
}

ordered_json to_json(const std::vector<ParamGroup>& groups) {
  ordered_json list = ordered_json::array();
  for (const ParamGroup& group : groups) {
    ordered_json& one =
        list.emplace_back(ordered_json{{"params", group.params}, {"lr_mult", group.lr_mult}});
    if (group.weight_decay) one["weight_decay"] = *group.weight_decay;
  }
  return list;
}

// Null stands for "none" or "derived"; only members with a derived default can be null.
ordered_json to_json(const Field& field, const Config& config) {
  Config copy = config;
  return std::visit(
      [&](const auto& member) -> ordered_json {
        const auto& value = member(copy);
        using T = std::decay_t<decltype(value)>;
        const bool may_be_null = !field.derived.empty();
        if constexpr (std::is_same_v<T, std::int64_t>) {
          if (may_be_null && value == 0) return nullptr;
          return value;
        } else if constexpr (std::is_same_v<T, std::optional<std::int64_t>> ||
                             std::is_same_v<T, std::optional<double>>) {
          return value ? ordered_json(*value) : ordered_json();
        } else if constexpr (std::is_arithmetic_v<T>) {
          return value;
        } else if constexpr (std::is_same_v<T, std::array<double, 2>>) {
          return value;
        } else {
          if (may_be_null && value.empty()) return nullptr;
          if constexpr (std::is_same_v<T, std::vector<DataSource>> ||
                        std::is_same_v<T, std::vector<ValidationSet>> ||
                        std::is_same_v<T, std::vector<ParamGroup>>) {
            return to_json(value);
          } else {
            return value;
          }
        }
      },
      field.member);
}

// "1", "1000000", "1e+12": bounds of integers are written in full up to nine digits.
std::string number(double value) {
  return std::abs(value) < 1e9 && value == static_cast<double>(static_cast<std::int64_t>(value))
             ? std::to_string(static_cast<std::int64_t>(value))
             : fmt::format("{:.8g}", value);
}

std::string range_text(const Range& range) {
  std::string text;
  if (range.min) text += (range.above_min ? "above " : "at least ") + number(*range.min);
  if (range.max) {
    if (!text.empty()) text += " and ";
    text += (range.below_max ? "below " : "at most ") + number(*range.max);
  }
  if (range.or_zero) text += ", or 0";
  return text;
}

}  // namespace

bool is_integer(const Field& field) {
  return std::holds_alternative<Member<std::int64_t>>(field.member) ||
         std::holds_alternative<Member<std::optional<std::int64_t>>>(field.member) ||
         std::holds_alternative<Member<std::vector<std::int64_t>>>(field.member);
}

bool has_words(const Field& field) {
  return !field.choices.empty() && !std::holds_alternative<Member<std::string>>(field.member) &&
         !std::holds_alternative<Member<std::vector<std::string>>>(field.member);
}

std::vector<Choice> choices_of(const Field& field, const ConfigConstraints& constraints) {
  std::vector<Choice> choices = field.choices;
  if (!field.kinds) return choices;
  for (const std::string& name : field.kinds(constraints)) choices.push_back({name});
  return choices;
}

std::string expected(const Field& field, const ConfigConstraints& constraints) {
  std::string words;
  std::vector<std::string> quoted;
  for (const Choice& choice : choices_of(field, constraints)) {
    quoted.push_back('"' + choice.name + '"');
  }
  if (!quoted.empty()) words = list_or(quoted);
  std::string text;
  const std::string range = range_text(field.range);
  if (std::holds_alternative<Member<std::string>>(field.member)) {
    return words.empty() ? "a string that isn't empty" : words;
  } else if (std::holds_alternative<Member<bool>>(field.member)) {
    text = "true or false";
  } else if (std::holds_alternative<Member<std::int64_t>>(field.member) ||
             std::holds_alternative<Member<std::optional<std::int64_t>>>(field.member)) {
    text = "an integer";
  } else if (std::holds_alternative<Member<double>>(field.member) ||
             std::holds_alternative<Member<std::optional<double>>>(field.member)) {
    text = "a number";
  } else if (std::holds_alternative<Member<std::array<double, 2>>>(field.member)) {
    text = "a list of two numbers, each";
  } else if (std::holds_alternative<Member<std::vector<std::int64_t>>>(field.member)) {
    text = field.number_is_list ? "an integer or a list of integers, each"
                                : "a list of integers, each";
  } else if (std::holds_alternative<Member<std::vector<std::string>>>(field.member)) {
    return fmt::format("a list of {}, each at most once", words);
  } else if (std::holds_alternative<Member<std::map<std::string, std::string>>>(field.member)) {
    text = "an object of strings";
  } else if (std::holds_alternative<Member<std::vector<DataSource>>>(field.member)) {
    text = "a list of sources";
  } else if (std::holds_alternative<Member<std::vector<ParamGroup>>>(field.member)) {
    return "a list of groups";
  } else {
    text = "a list of sources, or an object of named lists";
  }
  if (!range.empty()) text += " " + range;
  if (!words.empty()) text += ", or " + words;
  return text;
}

nlohmann::ordered_json value_of(const Field& field, const Config& config) {
  return to_json(field, config);
}

nlohmann::ordered_json usual_value(const Field& field) {
  static const Config usual;
  return to_json(field, usual);
}

}  // namespace config_detail

std::vector<std::pair<std::string, std::string>> config_values(const Config& config) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const config_detail::Field& field : config_detail::fields()) {
    values.emplace_back(field.path, json_text(config_detail::to_json(field, config)));
  }
  return values;
}

}  // namespace trident

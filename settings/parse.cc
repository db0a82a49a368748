// Reads JSON into the members of Config and checks types, ranges and choices.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "settings/fields.h"

namespace trident::config_detail {
namespace {

using nlohmann::json;

std::optional<std::int64_t> as_integer(const json& value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53: 5e8 is an integer, 0.5 and 1e300 aren't
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) <= kExact) {
      return static_cast<std::int64_t>(number);
    }
  }
  return std::nullopt;
}

bool in_range(double value, const Range& range) {
  if (range.or_zero && value == 0) return true;
  if (range.min && (range.above_min ? value <= *range.min : value < *range.min)) return false;
  if (range.max && (range.below_max ? value >= *range.max : value > *range.max)) return false;
  return true;
}

// Reads one field. A problem is added to `problems`, and the member then keeps its default.
class Reader {
 public:
  Reader(Config& config, Problems& problems)
      : rules_(*config.constraints), config_(config), problems_(problems) {}

  void read(const Field& field, const json& value) {
    std::visit([&](const auto& member) { read(field, value, member(config_)); }, field.member);
  }

 private:
  void mismatch(const Field& field, const json& value) {
    problems_.add(field.path, fmt::format("{} is not {}", shown(value), expected(field, rules_)));
  }

  void read(const Field& field, const json& value, bool& member) {
    if (!value.is_boolean()) return mismatch(field, value);
    member = value.get<bool>();
  }

  void read(const Field& field, const json& value, std::int64_t& member) {
    if (value.is_string() && !field.choices.empty()) {
      // Resolved later: no number is "even", a zero "auto".
      if (read_word(field, value) && value == "auto") member = {0};
      return;
    }
    const auto number = as_integer(value);
    if (!number || !in_range(static_cast<double>(*number), field.range)) {
      return mismatch(field, value);
    }
    member = *number;
  }

  void read(const Field& field, const json& value, std::optional<std::int64_t>& member) {
    std::int64_t number = 0;
    read(field, value, number);
    if (problems_.sound(field.path)) member = number;
  }

  void read(const Field& field, const json& value, double& member) {
    if (!value.is_number() || !in_range(value.get<double>(), field.range)) {
      return mismatch(field, value);
    }
    member = value.get<double>();
  }

  void read(const Field& field, const json& value, std::optional<double>& member) {
    double number = 0;
    read(field, value, number);
    if (problems_.sound(field.path)) member = number;
  }

  void read(const Field& field, const json& value, std::string& member) {
    if (field.number_is_text && value.is_number_unsigned()) {
      member = std::to_string(value.get<std::uint64_t>());
      return;
    }
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      return mismatch(field, value);
    }
    if (choices_of(field, rules_).empty() || read_word(field, value)) {
      member = value.get<std::string>();
    }
  }

  void read(const Field& field, const json& value, std::vector<std::int64_t>& member) {
    if (value.is_string() && !field.choices.empty()) {
      // Resolved later: no number is "even", a zero "auto".
      if (read_word(field, value) && value == "auto") member = {0};
      return;
    }
    if (field.number_is_list && value.is_number()) {
      std::int64_t number = 0;
      read(field, value, number);
      if (problems_.sound(field.path)) member = {-number};
      return;
    }
    // An empty list of iterations is valid; an empty layer split is not.
    if (!value.is_array() || (value.empty() && !field.choices.empty())) {
      return mismatch(field, value);
    }
    std::vector<std::int64_t> numbers;
    for (const json& element : value) {
      const auto number = as_integer(element);
      if (!number || !in_range(static_cast<double>(*number), field.range)) {
        return mismatch(field, value);
      }
      numbers.push_back(*number);
    }
    member = std::move(numbers);
  }

  void read(const Field& field, const json& value, std::vector<std::string>& member) {
    if (!value.is_array()) return mismatch(field, value);
    std::vector<std::string> words;
    for (const json& element : value) {
      if (!element.is_string()) return mismatch(field, value);
      if (!read_word(field, element)) return;
      words.push_back(element.get<std::string>());
      if (std::ranges::count(words, words.back()) > 1) return mismatch(field, value);
    }
    member = std::move(words);
  }

  void read(const Field& field, const json& value, std::map<std::string, std::string>& member) {
    const auto is_name = [](const json& element) {
      return element.is_string() && !element.get_ref<const std::string&>().empty();
    };
    if (!value.is_object() || value.contains("") || !std::ranges::all_of(value, is_name)) {
      return mismatch(field, value);
    }
    for (const auto& [from, to] : value.items()) member[from] = to.get<std::string>();
  }

  void read(const Field& field, const json& value, std::array<double, 2>& member) {
    const auto fits = [&](const json& element) {
      return element.is_number() && in_range(element.get<double>(), field.range);
    };
    if (!value.is_array() || value.size() != 2 || !std::all_of(value.begin(), value.end(), fits)) {
      return mismatch(field, value);
    }
    member = {value[0].get<double>(), value[1].get<double>()};
  }

  void read(const Field& field, const json& value, std::vector<DataSource>& member) {
    member = read_sources(field, field.path, value);
  }

  void read(const Field& field, const json& value, std::vector<ValidationSet>& member) {
    if (!value.is_object()) {
      member = {{.name = "", .sources = read_sources(field, field.path, value)}};
      return;
    }
    if (value.empty() || value.contains("")) return mismatch(field, value);
    for (const auto& [name, sources] : value.items()) {
      member.push_back({name, read_sources(field, json_pointer_append(field.path, name), sources)});
    }
  }

  void read(const Field& field, const json& value, std::vector<ParamGroup>& member) {
    const auto fail = [&](const std::string& where, const std::string& what) {
      problems_.add(where, what);
      problems_.spoil(field.path);
    };
    if (!value.is_array()) return mismatch(field, value);
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string at = fmt::format("{}/{}", field.path, i);
      const json& entry = value[i];
      if (!entry.is_object() || !entry.contains("params")) {
        fail(at, fmt::format("{} is not an object with params, a pattern of names", shown(entry)));
        continue;
      }
      ParamGroup group;
      for (const auto& [key, part] : entry.items()) {
        const std::string where = json_pointer_append(at, key);
        const bool number = part.is_number() && in_range(part.get<double>(), field.range);
        if (key == "params" && part.is_string() && !part.get_ref<const std::string&>().empty()) {
          group.params = part.get<std::string>();
        } else if (key == "params") {
          fail(where, fmt::format("{} is not a pattern of names", shown(part)));
        } else if (key == "lr_mult" && number) {
          group.lr_mult = part.get<double>();
        } else if (key == "weight_decay" && number) {
          group.weight_decay = part.get<double>();
        } else if (key == "lr_mult" || key == "weight_decay") {
          fail(where, fmt::format("{} is not a number that is 0 or more", shown(part)));
        } else {
          fail(where, "unknown key; there are params, lr_mult, weight_decay");
        }
      }
      member.push_back(std::move(group));
    }
  }

  // Whether a string is one of the field's choices; adds a problem if not.
  bool read_word(const Field& field, const json& value) {
    const auto& word = value.get_ref<const std::string&>();
    std::vector<std::string> known;
    for (const Choice& choice : choices_of(field, rules_)) {
      if (choice.name == word) return true;
      known.push_back(choice.name);
    }
    problems_.add(field.path, fmt::format("{} is not {}; did you mean \"{}\"?", shown(value),
                                          expected(field, rules_), nearest(word, known)));
    return false;
  }

  std::vector<DataSource> read_sources(const Field& field, const std::string& path,
                                       const json& value) {
    const auto fail = [&](const std::string& where, const std::string& what) {
      problems_.add(where, what);
      problems_.spoil(field.path);
    };
    if (!value.is_array() || value.empty()) {
      fail(path, fmt::format("{} is not a list of sources such as [{{\"path\": \"text.txt\"}}]",
                             shown(value)));
      return {};
    }
    std::vector<DataSource> sources;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string at = fmt::format("{}/{}", path, i);
      const json& entry = value[i];
      if (!entry.is_object()) {
        fail(at, fmt::format("{} is not an object with path and weight", shown(entry)));
        continue;
      }
      DataSource source;
      for (const auto& [key, part] : entry.items()) {
        const std::string where = json_pointer_append(at, key);
        if (key == "path") {
          if (part.is_string() && !part.get_ref<const std::string&>().empty()) {
            source.path = part.get<std::string>();
          } else {
            fail(where, fmt::format("{} is not a path", shown(part)));
          }
        } else if (key == "weight") {
          if (part.is_number() && part.get<double>() > 0) {
            source.weight = part.get<double>();
          } else {
            fail(where, fmt::format("{} is not a number above 0", shown(part)));
          }
        } else {
          fail(where,
               fmt::format("unknown key; did you mean {}?", nearest(key, {"path", "weight"})));
        }
      }
      if (!entry.contains("path")) fail(at, "has no path; it must name a file");
      sources.push_back(std::move(source));
    }
    return sources;
  }

  const ConfigConstraints& rules_;
  Config& config_;
  Problems& problems_;
};

}  // namespace

std::string shown(const json& value) {
  return printable(json_text(value), 60);
}

namespace {

// Whether the field's constant default is missing from its registry.
bool lacks_default(const Field& field, Config& config) {
  if (!field.kinds || !field.derived.empty()) return false;
  const std::string& name = std::get<Member<std::string>>(field.member)(config);
  const auto choices = choices_of(field, *config.constraints);
  return std::none_of(choices.begin(), choices.end(),
                      [&](const Choice& choice) { return choice.name == name; });
}

}  // namespace

Given read_fields(const json& document, Config& config, Problems& problems) {
  Given given;
  Reader reader(config, problems);
  for (const Field& field : fields()) {
    const json* value = find(document, field.path);
    if (value != nullptr && !(value->is_null() && !field.derived.empty())) {
      given.insert(field.path);
      reader.read(field, *value);
    } else if (field.required || lacks_default(field, config)) {
      problems.add(field.path,
                   fmt::format("is missing; it must be {}", expected(field, *config.constraints)));
    }
  }
  return given;
}

}  // namespace trident::config_detail

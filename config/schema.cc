// What the field table prints: the filled-in config, the JSON Schema and the reference page.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/fields.h"
#include "config/values.h"
#include "core/json.h"

namespace trident {
namespace config_detail {
namespace {

using nlohmann::ordered_json;

std::string leaf(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}
std::string parent(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

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

// Null stands for "none" or "derived", which only such members can mean.
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
        } else if constexpr (std::is_arithmetic_v<T>) {
          return value;
        } else if constexpr (std::is_same_v<T, std::array<double, 2>>) {
          return value;
        } else {
          if (may_be_null && value.empty()) return nullptr;
          if constexpr (std::is_same_v<T, std::vector<DataSource>> ||
                        std::is_same_v<T, std::vector<ValidationSet>>) {
            return to_json(value);
          } else {
            return value;
          }
        }
      },
      field.member);
}

bool is_integer(const Field& field) {
  return std::holds_alternative<Member<std::int64_t>>(field.member) ||
         std::holds_alternative<Member<std::vector<std::int64_t>>>(field.member);
}

// "1", "1000000", "1e+12": bounds of integers are written in full up to nine digits.
std::string number(double value) {
  return value == static_cast<double>(static_cast<std::int64_t>(value)) && value < 1e9
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

void add_range(ordered_json& schema, const Field& field) {
  const auto bound = [&](double value) -> ordered_json {
    if (is_integer(field)) return static_cast<std::int64_t>(value);
    return value;
  };
  if (field.range.or_zero) {
    Field rest = field;
    rest.range.or_zero = false;
    ordered_json bounds = ordered_json::object();
    add_range(bounds, rest);
    schema["anyOf"] = {{{"const", 0}}, bounds};
    return;
  }
  const Range& range = field.range;
  if (range.min) schema[range.above_min ? "exclusiveMinimum" : "minimum"] = bound(*range.min);
  if (range.max) schema[range.below_max ? "exclusiveMaximum" : "maximum"] = bound(*range.max);
}

ordered_json names(const std::vector<Choice>& choices) {
  ordered_json list = ordered_json::array();
  for (const Choice& choice : choices) list.push_back(choice.name);
  return list;
}

ordered_json sources_schema() {
  return ordered_json_or_null(R"({"type": "array", "minItems": 1, "items": {
    "type": "object", "additionalProperties": false, "required": ["path"],
    "properties": {"path": {"type": "string", "minLength": 1},
                   "weight": {"type": "number", "exclusiveMinimum": 0, "default": 1}}}})");
}

// The value itself, words and null left aside.
ordered_json value_schema(const Field& field, const std::vector<std::string>& architectures) {
  ordered_json schema;
  ordered_json element;
  if (std::holds_alternative<Member<bool>>(field.member)) {
    schema["type"] = "boolean";
  } else if (std::holds_alternative<Member<std::string>>(field.member)) {
    schema["type"] = "string";
    const auto choices = choices_of(field, architectures);
    if (choices.empty()) {
      schema["minLength"] = 1;
    } else {
      schema["enum"] = names(choices);
    }
  } else if (std::holds_alternative<Member<std::vector<DataSource>>>(field.member)) {
    schema = sources_schema();
  } else if (std::holds_alternative<Member<std::vector<ValidationSet>>>(field.member)) {
    schema["anyOf"] = {sources_schema(),
                       {{"type", "object"},
                        {"minProperties", 1},
                        {"propertyNames", {{"minLength", 1}}},
                        {"additionalProperties", sources_schema()}}};
  } else if (std::holds_alternative<Member<std::array<double, 2>>>(field.member)) {
    element["type"] = "number";
    add_range(element, field);
    schema = {{"type", "array"}, {"items", element}, {"minItems", 2}, {"maxItems", 2}};
  } else if (std::holds_alternative<Member<std::vector<std::int64_t>>>(field.member)) {
    element["type"] = "integer";
    add_range(element, field);
    schema = {{"type", "array"}, {"items", element}};
    if (!field.choices.empty()) schema["minItems"] = 1;
  } else {
    schema["type"] = is_integer(field) ? "integer" : "number";
    add_range(schema, field);
  }
  return schema;
}

ordered_json field_schema(const Field& field, const std::vector<std::string>& architectures) {
  ordered_json schema = value_schema(field, architectures);
  const bool words =
      !std::holds_alternative<Member<std::string>>(field.member) && !field.choices.empty();
  if (words || !field.derived.empty()) {
    ordered_json any = ordered_json::array({schema});
    if (words) any.push_back({{"enum", names(field.choices)}});
    if (!field.derived.empty()) any.push_back({{"type", "null"}});
    schema = {{"anyOf", any}};
  }
  std::string text = field.doc;
  if (!field.unit.empty()) text += fmt::format(" Unit: {}.", field.unit);
  if (!field.derived.empty()) text += fmt::format(" Default: {}.", field.derived);
  if (!field.later.empty()) text += fmt::format(" Not available yet: comes with {}.", field.later);
  schema["description"] = text;
  if (field.derived.empty() && !field.required) schema["default"] = to_json(field, Config{});
  return schema;
}

// A cell of a Markdown table.
std::string cell(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '|' ? std::string("\\|") : std::string(1, c);
  return result;
}

std::string markdown_row(const Field& field) {
  std::string usual = field.derived;
  if (field.required) {
    usual = "must be given";
  } else if (usual.empty()) {
    usual = "`" + json_text(to_json(field, Config{})) + "`";
  }
  std::string doc = field.doc;
  std::string later;
  for (const Choice& choice : field.choices) {
    if (choice.later.empty()) continue;
    later += fmt::format("{}{}", later.empty() ? "" : ", ", choice.name);
  }
  if (!field.later.empty()) {
    doc += fmt::format(" *Not available yet: comes with {}.*", field.later);
  } else if (!later.empty()) {
    doc += fmt::format(" *Not available yet: {}.*", later);
  }
  std::string value = expected(field, {"gpt2", "llama"});
  if (!field.unit.empty()) value += fmt::format(" ({})", field.unit);
  return fmt::format("| `{}` | {} | {} | {} |\n", leaf(field.path), cell(value), cell(usual),
                     cell(doc));
}

}  // namespace

std::vector<Choice> choices_of(const Field& field, const std::vector<std::string>& architectures) {
  if (field.path != "/model/architecture") return field.choices;
  std::vector<Choice> choices;
  for (const std::string& name : architectures) choices.push_back({name});
  return choices;
}

std::string expected(const Field& field, const std::vector<std::string>& architectures) {
  std::string words;
  std::vector<std::string> quoted;
  for (const Choice& choice : choices_of(field, architectures)) {
    quoted.push_back('"' + choice.name + '"');
  }
  if (!quoted.empty()) words = list_or(quoted);
  std::string text;
  const std::string range = range_text(field.range);
  if (std::holds_alternative<Member<std::string>>(field.member)) {
    return words.empty() ? "a string that isn't empty" : words;
  } else if (std::holds_alternative<Member<bool>>(field.member)) {
    text = "true or false";
  } else if (std::holds_alternative<Member<std::int64_t>>(field.member)) {
    text = "an integer";
  } else if (std::holds_alternative<Member<double>>(field.member)) {
    text = "a number";
  } else if (std::holds_alternative<Member<std::array<double, 2>>>(field.member)) {
    text = "a list of two numbers, each";
  } else if (std::holds_alternative<Member<std::vector<std::int64_t>>>(field.member)) {
    text = "a list of integers, each";
  } else if (std::holds_alternative<Member<std::vector<DataSource>>>(field.member)) {
    text = "a list of sources";
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

}  // namespace config_detail

std::vector<std::pair<std::string, std::string>> config_values(const Config& config) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const config_detail::Field& field : config_detail::fields()) {
    values.emplace_back(field.path, json_text(config_detail::to_json(field, config)));
  }
  return values;
}

std::string config_schema(const std::vector<std::string>& architectures) {
  using namespace config_detail;
  ordered_json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                         {"title", "Trident training configuration"},
                         {"type", "object"},
                         {"additionalProperties", false},
                         {"required", ordered_json::array()},
                         {"properties", ordered_json::object()}};
  const auto object_at = [&](const std::string& path) -> ordered_json& {
    ordered_json* at = &schema;
    std::string rest = path;
    while (!rest.empty()) {
      const auto slash = rest.find('/', 1);
      at = &(*at)["properties"][rest.substr(1, slash - 1)];
      rest = slash == std::string::npos ? "" : rest.substr(slash);
    }
    return *at;
  };
  schema["properties"][kDerived] = {
      {"type", "object"},
      {"description",
       "In a filled-in config: the keys that were derived, with what was written in their place."}};
  for (const Section& section : sections()) {
    if (section.path.empty()) continue;
    object_at(section.path) = {{"type", "object"},
                               {"description", section.doc},
                               {"additionalProperties", false},
                               {"properties", ordered_json::object()}};
  }
  for (const Field& field : fields()) {
    const std::string section = parent(field.path);
    object_at(field.path) = field_schema(field, architectures);
    if (!field.required) continue;
    object_at(section)["required"].push_back(leaf(field.path));
    ordered_json& required = schema["required"];
    const std::string name = section.substr(1);
    if (std::find(required.begin(), required.end(), name) == required.end()) {
      required.push_back(name);
    }
  }
  return json_text(schema, 2) + "\n";
}

std::string config_reference_markdown() {
  using namespace config_detail;
  std::string page =
      "# The configuration file\n\n"
      "<!-- Generated from the field table in config/fields.cc; "
      "tests/config/schema_test.cc keeps it current. -->\n\n"
      "One JSON object of sections. Every key is checked: an unknown key, a wrong type or a "
      "number out of range is an error, and all errors are shown at once. A key that is left out "
      "gets its default; a key whose default is described in words may also be `null`, which is "
      "the same. `--set section.key=value` overrides on the command line (a JSON value, else a "
      "string; list elements by number, `--set data.train.0.path=book.txt`; `null` takes a key "
      "out). `--dry-run` prints the config with every default filled in.\n\n"
      "A run keeps its config twice in `logging.dir`: `config.user.json` is what was asked for, "
      "the "
      "file with its overrides and no default; `config.json` is the config as it ran. `derived` in "
      "the latter lists the keys whose values followed from others or from the machine, each with "
      "what was written in its place. Trained from again, it runs with the same numbers on any "
      "machine, but what an override or an edit of the file changes is derived anew: another "
      "`training.train_iters` takes `scheduler.decay_iters` along. `--set derived=null` holds "
      "every "
      "number as it is.\n";
  for (const Section& section : sections()) {
    std::string title = section.path.empty() ? "top level" : section.path.substr(1);
    std::replace(title.begin(), title.end(), '/', '.');
    page += fmt::format("\n## {}\n\n{}\n\n| key | value | default | meaning |\n|---|---|---|---|\n",
                        title, section.doc);
    for (const Field& field : fields()) {
      if (parent(field.path) == section.path) page += markdown_row(field);
    }
  }
  return page;
}

}  // namespace trident

// Generates the JSON Schema of a config file.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "settings/fields.h"

namespace trident {
namespace config_detail {
namespace {

using nlohmann::ordered_json;

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

// The schema of the value itself, without words and null.
ordered_json value_schema(const Field& field, const ConfigConstraints& constraints) {
  ordered_json schema;
  ordered_json element;
  if (std::holds_alternative<Member<bool>>(field.member)) {
    schema["type"] = "boolean";
  } else if (std::holds_alternative<Member<std::string>>(field.member)) {
    schema["type"] = field.number_is_text ? ordered_json{"string", "integer"} : "string";
    const auto choices = choices_of(field, constraints);
    if (choices.empty()) {
      schema["minLength"] = 1;
    } else {
      schema["enum"] = names(choices);
    }
  } else if (std::holds_alternative<Member<std::vector<std::string>>>(field.member)) {
    schema = {{"type", "array"},
              {"items", {{"enum", names(choices_of(field, constraints))}}},
              {"uniqueItems", true}};
  } else if (std::holds_alternative<Member<std::map<std::string, std::string>>>(field.member)) {
    const ordered_json name = {{"type", "string"}, {"minLength", 1}};
    schema = {
        {"type", "object"}, {"propertyNames", {{"minLength", 1}}}, {"additionalProperties", name}};
  } else if (std::holds_alternative<Member<std::vector<DataSource>>>(field.member)) {
    schema = sources_schema();
  } else if (std::holds_alternative<Member<std::vector<ValidationSet>>>(field.member)) {
    schema["anyOf"] = {sources_schema(),
                       {{"type", "object"},
                        {"minProperties", 1},
                        {"propertyNames", {{"minLength", 1}}},
                        {"additionalProperties", sources_schema()}}};
  } else if (std::holds_alternative<Member<std::vector<ParamGroup>>>(field.member)) {
    ordered_json number = {{"type", "number"}};
    add_range(number, field);
    ordered_json decay = number, factor = number;
    factor["default"] = 1;
    const ordered_json properties = {{"params", {{"type", "string"}, {"minLength", 1}}},
                                     {"lr_mult", factor},
                                     {"weight_decay", decay}};
    schema = {{"type", "array"},
              {"items",
               {{"type", "object"},
                {"additionalProperties", false},
                {"required", {"params"}},
                {"properties", properties}}}};
  } else if (std::holds_alternative<Member<std::array<double, 2>>>(field.member)) {
    element["type"] = "number";
    add_range(element, field);
    schema = {{"type", "array"}, {"items", element}, {"minItems", 2}, {"maxItems", 2}};
  } else if (std::holds_alternative<Member<std::vector<std::int64_t>>>(field.member)) {
    element["type"] = "integer";
    add_range(element, field);
    schema = {{"type", "array"}, {"items", element}};
    if (!field.choices.empty()) schema["minItems"] = 1;
    if (field.number_is_list) schema = {{"anyOf", {element, schema}}};
  } else {
    schema["type"] = is_integer(field) ? "integer" : "number";
    add_range(schema, field);
  }
  return schema;
}

ordered_json field_schema(const Field& field, const ConfigConstraints& constraints) {
  ordered_json schema = value_schema(field, constraints);
  const bool words = has_words(field);
  if (words || !field.derived.empty()) {
    ordered_json any = ordered_json::array({schema});
    if (words) any.push_back({{"enum", names(choices_of(field, constraints))}});
    if (!field.derived.empty()) any.push_back({{"type", "null"}});
    schema = {{"anyOf", any}};
  }
  std::string text = field.doc(constraints);
  if (!field.unit.empty()) text += fmt::format(" Unit: {}.", field.unit);
  if (!field.derived.empty()) text += fmt::format(" Default: {}.", field.derived(constraints));
  schema["description"] = text;
  if (field.derived.empty() && !field.required) schema["default"] = usual_value(field);
  return schema;
}

}  // namespace
}  // namespace config_detail

std::string config_schema(const ConfigConstraints& constraints) {
  using namespace config_detail;
  ordered_json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                         {"title", "Trident training configuration"},
                         {"type", "object"},
                         {"additionalProperties", false},
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
  schema["properties"]["$schema"] = {{"type", "string"},
                                     {"description", "Where this schema lies, for editors."}};
  const ordered_json path = {{"type", "string"}, {"minLength", 1}};
  schema["properties"]["extends"] = {
      {"anyOf", {path, {{"type", "array"}, {"items", path}}}},
      {"description",
       "Configs that this one begins from, by paths from its own folder. Its own values win key by "
       "key, then those of later configs."}};
  schema["properties"][kDerived] = {{"type", "object"},
                                    {"description",
                                     "In a filled-in config: the keys that were derived, with the "
                                     "values that were written in their place."}};
  for (const Section& section : sections()) {
    if (section.path.empty()) continue;
    object_at(section.path) = {{"type", "object"},
                               {"description", section.doc},
                               {"additionalProperties", false},
                               {"properties", ordered_json::object()}};
  }
  // Keys are required only if no other file can provide them: neither a base, nor the weights to
  // begin with.
  const ordered_json has_bases = {{"required", {"extends"}}};
  const ordered_json has_weights = {
      {"required", {"checkpoint"}},
      {"properties", {{"checkpoint", {{"type", "object"}, {"required", {"load"}}}}}}};
  ordered_json own, model;
  for (const Field& field : fields()) {
    object_at(field.path) = field_schema(field, constraints);
    if (!field.required) continue;
    const std::string name = parent(field.path).substr(1);
    ordered_json& needed = name == "model" ? model : own;
    ordered_json& sections = needed["required"];
    if (std::find(sections.begin(), sections.end(), name) == sections.end()) {
      sections.push_back(name);
    }
    needed["properties"][name]["required"].push_back(leaf(field.path));
  }
  schema["allOf"] = {{{"if", {{"not", has_bases}}}, {"then", own}},
                     {{"if", {{"not", {{"anyOf", {has_bases, has_weights}}}}}}, {"then", model}}};
  for (const Section& section : sections()) {
    if (section.word.empty()) continue;
    ordered_json& object = object_at(section.path);
    object.erase("type");  // "properties" don't restrict a word
    object["anyOf"] = {{{"type", "object"}}, {{"const", section.word}}};
  }
  return json_text(schema, 2) + "\n";
}

}  // namespace trident

#include "formats/gguf/tokenizer_json.h"

#include <algorithm>
#include <set>

namespace trident {

using nlohmann::json;

const json& part_at(const json& object, const char* key) {
  static const json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

bool flag_at(const json& object, const char* key, bool otherwise) {
  const json& value = part_at(object, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

std::string word_at(const json& object, const char* key) {
  const json& value = part_at(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

std::vector<json> steps_of(const json& part, const char* list) {
  if (part.is_null()) return {};
  if (word_at(part, "type") != "Sequence") return {part};
  std::vector<json> steps;
  for (const json& step : part_at(part, list)) {
    for (json& inner : steps_of(step, list)) steps.push_back(std::move(inner));
  }
  return steps;
}

Merges merges_of(const json& model) {
  Merges merges;
  for (const json& merge : part_at(model, "merges")) {  // "a b" or ["a", "b"]
    if (merge.is_array()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const auto both = merge.get<std::string>();
    const std::size_t space = both.find(' ');
    merges.emplace_back(both.substr(0, space), both.substr(space + 1));
  }
  std::set<std::pair<std::string, std::string>> later;
  std::ranges::reverse(merges);
  std::erase_if(merges, [&](const auto& merge) { return !later.insert(merge).second; });
  std::ranges::reverse(merges);
  return merges;
}

}  // namespace trident

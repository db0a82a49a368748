#include "datasets/tokenizer/post_processor.h"

#include <nlohmann/json.hpp>

namespace trident {
namespace {

// Reads a token and its id, such as ["[CLS]", 101], and returns the id.
std::int32_t read_pair(const JsonPart& part, std::string_view key) {
  const nlohmann::json& pair = part[key];
  if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_unsigned() ||
      pair[1] >= std::uint64_t{1} << 31) {
    part.fail(key, "needs a token and its id");
  }
  return pair[1].get<std::int32_t>();
}

void add(Surroundings& surroundings, const std::vector<std::int32_t>& before,
         const std::vector<std::int32_t>& after) {
  surroundings.before.insert(surroundings.before.begin(), before.begin(), before.end());
  surroundings.after.insert(surroundings.after.end(), after.begin(), after.end());
}

std::vector<std::int32_t> template_ids(const JsonPart& part, const std::string& name) {
  const JsonPart token = part.part("special_tokens").part(name);
  const nlohmann::json& ids = token["ids"];
  std::vector<std::int32_t> result;
  if (!ids.is_array()) token.fail("ids", "needs a list");
  for (const auto& id : ids) {
    if (!id.is_number_unsigned() || id >= std::uint64_t{1} << 31) token.fail("ids", "needs ids");
    result.push_back(id.get<std::int32_t>());
  }
  return result;
}

void read_template(const JsonPart& part, Surroundings& surroundings) {
  part.allow({"type", "single", "pair", "special_tokens"});
  std::vector<std::int32_t> sides[2];
  bool text = false;
  for (const JsonPart& piece : part.parts("single")) {
    piece.allow({"Sequence", "SpecialToken"});
    if (!piece.lacks("Sequence")) {
      if (text) part.fail("single", "has more than one Sequence, the place of the text");
      text = true;
      continue;
    }
    const auto ids = template_ids(part, piece.part("SpecialToken").string("id"));
    sides[text].insert(sides[text].end(), ids.begin(), ids.end());
  }
  if (!text) part.fail("single", "has no Sequence, the place of the text");
  add(surroundings, sides[0], sides[1]);
}

}  // namespace

void read_post_processor(const JsonPart& part, Surroundings& surroundings) {
  switch (part.type_among(
      {"Sequence", "ByteLevel", "TemplateProcessing", "BertProcessing", "RobertaProcessing"})) {
    case 0:
      part.allow({"type", "processors"});
      for (const JsonPart& inner : part.parts("processors")) {
        read_post_processor(inner, surroundings);
      }
      return;
    case 1:  // changes only the offsets of tokens
      return;
    case 2:
      return read_template(part, surroundings);
    default:
      part.allow({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
      add(surroundings, {read_pair(part, "cls")}, {read_pair(part, "sep")});
  }
}

}  // namespace trident

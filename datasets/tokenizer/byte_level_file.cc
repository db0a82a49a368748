#include "datasets/tokenizer/byte_level_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "datasets/tokenizer/gpt_pattern.h"

namespace trident {

using nlohmann::ordered_json;

ordered_json byte_level(bool add_prefix_space, bool trim_offsets, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", trim_offsets},
          {"use_regex", use_regex}};
}

ordered_json byte_level_document(const ordered_json& added_tokens,
                                 const ordered_json& pre_tokenizer,
                                 const ordered_json& post_processor, const ordered_json& decoder) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens},
          {"normalizer", nullptr},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", post_processor},
          {"decoder", decoder},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false}}}};
}

namespace {

ordered_json pre_tokenizer(const std::string& pattern) {
  if (pattern == kGpt2Pattern) return byte_level(false, true, true);
  const ordered_json split = {{"type", "Split"},
                              {"pattern", {{"Regex", pattern}}},
                              {"behavior", "Isolated"},
                              {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false, true, false)}}};
}

ordered_json added_tokens(const TrainedBpe& trained, const std::vector<std::string>& tokens) {
  ordered_json list = ordered_json::array();
  for (std::size_t id = 0; id < trained.tokens.size() && list.size() < tokens.size(); ++id) {
    if (std::ranges::find(tokens, trained.tokens[id]) == tokens.end()) break;
    list.push_back({{"id", id},
                    {"content", trained.tokens[id]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}});
  }
  return list;
}

std::string quoted(const std::string& text) {
  return json_text(nlohmann::json(text));
}

}  // namespace

std::string byte_level_tokenizer_file(const TrainedBpe& trained,
                                      const std::vector<std::string>& special_tokens,
                                      const std::string& pattern) {
  const ordered_json document =
      byte_level_document(added_tokens(trained, special_tokens), pre_tokenizer(pattern),
                          byte_level(true, false, true), byte_level(true, true, true));
  std::string text = json_text(document, 2);
  // ordered_json searches all keys for each new key, which is slow for a vocabulary; write it here.
  text.resize(text.size() - std::string_view("\n  }\n}").size());
  text += ",\n    \"vocab\": {";
  const char* comma = "";
  for (std::size_t id = 0; id < trained.tokens.size(); ++id, comma = ",") {
    text += fmt::format("{}\n      {}: {}", comma, quoted(trained.tokens[id]), id);
  }
  text += "\n    },\n    \"merges\": [";
  comma = "";
  for (const auto& [left, right] : trained.merges) {
    const auto token = [&](std::int32_t id) {
      return quoted(trained.tokens[static_cast<std::size_t>(id)]);
    };
    text += fmt::format("{}\n      [\n        {},\n        {}\n      ]", comma, token(left),
                        token(right));
    comma = ",";
  }
  return text + (trained.merges.empty() ? "]\n  }\n}" : "\n    ]\n  }\n}");
}

}  // namespace trident

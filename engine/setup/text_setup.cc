#include "engine/setup/text_setup.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "datasets/tokenizer/byte_level.h"
#include "datasets/tokenizer/byte_level_file.h"

namespace trident {
namespace {

constexpr std::uint64_t kMaxTokenizerFile = std::uint64_t{256} << 20;  // bytes

// The text of a file in the tokenizer's folder; "" if there is no such file.
std::string text_beside(const std::string& tokenizer, const char* name) {
  const std::string path = (std::filesystem::path(tokenizer).parent_path() / name).string();
  std::error_code missing;
  return std::filesystem::is_regular_file(path, missing) ? read_file(path, kMaxTokenizerFile) : "";
}

// The value is "</s>", or {"content": "</s>", …}.
std::string eos_in(const std::string& tokenizer_config) {
  const nlohmann::json document = json_or_null(tokenizer_config);
  if (!document.is_object() || !document.contains("eos_token")) return "";
  nlohmann::json token = document["eos_token"];
  if (token.is_object() && token.contains("content")) token = token["content"];
  return token.is_string() ? token.get<std::string>() : "";
}

}  // namespace

std::string tokenizer_file(const TokenizerConfig& tokenizer) {
  const std::string& path = tokenizer.path;
  std::error_code missing;
  return std::filesystem::is_directory(path, missing) ? path + "/tokenizer.json" : path;
}

std::optional<std::int32_t> end_of_text(const Tokenizer& tokenizer, const std::string& eos_token,
                                        const std::string& tokenizer_config) {
  if (!eos_token.empty()) return tokenizer.id_of(eos_token);
  if (const std::string named = eos_in(tokenizer_config); !named.empty()) {
    return tokenizer.id_of(named);
  }
  for (const char* usual : {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[SEP]"}) {
    if (const auto id = tokenizer.id_of(usual)) return id;
  }
  return std::nullopt;
}

const std::string& byte_tokenizer() {
  static const std::string text = [] {
    nlohmann::ordered_json vocabulary;
    for (int byte = 0; byte < 256; ++byte) {
      vocabulary[to_byte_level(std::string(1, static_cast<char>(byte)))] = byte;
    }
    const nlohmann::ordered_json bytes = byte_level(false, true, false);
    nlohmann::ordered_json document =
        byte_level_document(nlohmann::ordered_json::array(), bytes, nullptr, bytes);
    document["model"]["vocab"] = std::move(vocabulary);
    document["model"]["merges"] = nlohmann::ordered_json::array();
    return json_text(document, 2) + "\n";
  }();
  return text;
}

bool has_byte_tokenizer(const std::string& directory) {
  return text_beside(directory + "/tokenizer.json", "tokenizer.json") == byte_tokenizer();
}

std::optional<std::int32_t> token_id(const nlohmann::json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  const auto id = value.get<std::int64_t>();
  const bool fits = !value.is_number_unsigned() || value.get<std::uint64_t>() <= INT32_MAX;
  return fits && id >= 0 && id <= INT32_MAX ? std::optional(static_cast<std::int32_t>(id))
                                            : std::nullopt;
}

std::vector<std::int32_t> end_tokens(const std::string& directory, const Tokenizer* tokenizer,
                                     bool look_on) {
  const std::string beside = directory + "/tokenizer.json";
  for (const char* name : {"generation_config.json", "config.json"}) {
    const nlohmann::json document = json_or_null(text_beside(beside, name));
    if (!document.is_object()) continue;
    nlohmann::json ids = document.value("eos_token_id", nlohmann::json());
    if (!ids.is_array()) ids = nlohmann::json::array({ids});
    std::vector<std::int32_t> result;
    for (const auto& value : ids) {
      if (const auto id = token_id(value)) result.push_back(*id);
    }
    const bool decides = !look_on && name == std::string_view("generation_config.json");
    if (!result.empty() || decides) return result;
  }
  if (tokenizer == nullptr) return {};
  const auto id = end_of_text(*tokenizer, "", text_beside(beside, "tokenizer_config.json"));
  return id ? std::vector{*id} : std::vector<std::int32_t>{};
}

TokenizerFiles tokenizer_files(const TokenizerConfig& tokenizer_config,
                               std::int64_t max_position_embeddings) {
  TokenizerFiles files;
  const bool bytes = tokenizer_config.type == "byte";
  const std::string path = bytes ? "" : tokenizer_file(tokenizer_config);
  std::string& text = files.texts["tokenizer.json"];
  text = bytes ? byte_tokenizer() : read_file(path, kMaxTokenizerFile);
  for (const char* name : {"tokenizer_config.json", "generation_config.json"}) {
    const std::string beside = bytes ? "" : text_beside(path, name);
    if (!beside.empty()) files.texts[name] = beside;
  }
  std::optional<std::string> end;  // the token's text
  if (!bytes) {
    try {
      const Tokenizer tokenizer(text, path);
      files.end_of_text =
          end_of_text(tokenizer, tokenizer_config.eos_token, files.texts["tokenizer_config.json"]);
      if (files.end_of_text) end = tokenizer.token_of(*files.end_of_text);
    } catch (const RequestError&) {
      return files;
    }
  }
  if (files.texts["tokenizer_config.json"].empty()) {
    nlohmann::ordered_json made = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"model_max_length", max_position_embeddings},
                                   {"clean_up_tokenization_spaces", false}};
    if (end) made["eos_token"] = *end;
    files.texts["tokenizer_config.json"] = json_text(made, 2) + "\n";
  }
  if (!files.texts.contains("generation_config.json")) {
    nlohmann::ordered_json made = {{"eos_token_id", nullptr}};
    if (files.end_of_text) made["eos_token_id"] = *files.end_of_text;
    files.texts["generation_config.json"] = json_text(made, 2) + "\n";
  }
  return files;
}

DocumentEncoder document_encoder_of(const DataConfig& data) {
  DocumentEncoder encoder{.replace_errors = data.tokenizer.errors == "replace",
                          .json_key = data.json_key};
  const auto bytes = [&] {
    encoder.tokenizer_text.clear();
    if (data.append_eod) encoder.end_of_document = '\n';
    return encoder;
  };
  if (data.tokenizer.type == "byte") return bytes();
  const std::string path = tokenizer_file(data.tokenizer);
  try {
    encoder.tokenizer_text = read_file(path, kMaxTokenizerFile);
    if (encoder.tokenizer_text == byte_tokenizer()) return bytes();
    encoder.tokenizer = std::make_shared<Tokenizer>(encoder.tokenizer_text, path);
    if (!data.append_eod) return encoder;
    encoder.end_of_document = end_of_text(*encoder.tokenizer, data.tokenizer.eos_token,
                                          text_beside(path, "tokenizer_config.json"));
  } catch (const RequestError& error) {
    throw error.at("config: /data/tokenizer/path: ");
  }
  if (!encoder.end_of_document) {
    const std::string& asked = data.tokenizer.eos_token;
    const std::string named = eos_in(text_beside(path, "tokenizer_config.json"));
    if (asked.empty() && !named.empty()) {
      throw RequestError(fmt::format(
          "config: /data/tokenizer/eos_token: the tokenizer_config.json beside {} names \"{}\", "
          "which the tokenizer doesn't have; name the token that ends a text, or set "
          "data.append_eod to false",
          path, printable(named, 60)));
    }
    throw RequestError(
        asked.empty()
            ? fmt::format("config: /data/tokenizer/eos_token: is missing, and {} has none of the "
                          "usual names; name the token that ends a text, or set data.append_eod "
                          "to false",
                          path)
            : fmt::format("config: /data/tokenizer/eos_token: {} has no token \"{}\"", path,
                          printable(asked, 60)));
  }
  return encoder;
}

std::function<DocumentEncoder()> document_encoder_when_asked(const DataConfig& data) {
  return [&data, read = std::make_shared<std::optional<DocumentEncoder>>()] {
    if (!*read) *read = document_encoder_of(data);
    return **read;
  };
}

}  // namespace trident

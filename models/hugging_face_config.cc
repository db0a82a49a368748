#include "models/hugging_face_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "models/hugging_face_values.h"

namespace trident {
namespace {

using nlohmann::json;
using Use = HuggingFaceUse;

// Keys that every config.json may have (transformers 4.30 to 5.24: configuration_utils.py, and the
// keys that modeling_utils.py, masking_utils.py and cache_utils.py read).
constexpr HuggingFaceKey common[] = {
    {"model_type", Use::model},
    {"architectures", Use::model},
    {"tie_word_embeddings", Use::model},
    {"torch_dtype", Use::model},
    {"dtype", Use::model},

    {"bos_token_id", Use::weights},
    {"eos_token_id", Use::weights},
    {"pad_token_id", Use::weights},
    {"sep_token_id", Use::weights},
    {"decoder_start_token_id", Use::weights},
    {"forced_bos_token_id", Use::weights},
    {"forced_eos_token_id", Use::weights},
    {"tokenizer_class", Use::weights},
    {"prefix", Use::weights},
    {"task_specific_params", Use::weights},
    {"finetuning_task", Use::weights},
    {"problem_type", Use::weights},
    {"id2label", Use::weights},
    {"label2id", Use::weights},
    {"num_labels", Use::weights},
    // Generation; newer directories have these keys in generation_config.json.
    {"max_length", Use::weights},
    {"min_length", Use::weights},
    {"max_new_tokens", Use::weights},
    {"do_sample", Use::weights},
    {"early_stopping", Use::weights},
    {"num_beams", Use::weights},
    {"num_beam_groups", Use::weights},
    {"diversity_penalty", Use::weights},
    {"temperature", Use::weights},
    {"top_k", Use::weights},
    {"top_p", Use::weights},
    {"typical_p", Use::weights},
    {"epsilon_cutoff", Use::weights},
    {"eta_cutoff", Use::weights},
    {"repetition_penalty", Use::weights},
    {"encoder_repetition_penalty", Use::weights},
    {"length_penalty", Use::weights},
    {"no_repeat_ngram_size", Use::weights},
    {"encoder_no_repeat_ngram_size", Use::weights},
    {"bad_words_ids", Use::weights},
    {"num_return_sequences", Use::weights},
    {"remove_invalid_values", Use::weights},
    {"exponential_decay_length_penalty", Use::weights},
    {"suppress_tokens", Use::weights},
    {"begin_suppress_tokens", Use::weights},
    {"num_assistant_tokens", Use::weights},
    {"num_assistant_tokens_schedule", Use::weights},
    {"assistant_confidence_threshold", Use::weights},
    {"assistant_lookbehind", Use::weights},
    {"target_lookbehind", Use::weights},

    {"initializer_range", Use::training},
    // Attention is causal whatever the value.
    {"is_decoder", Use::training},
    // Runs the MLP on parts of the sequence, with the same result.
    {"chunk_size_feed_forward", Use::training},
    {"use_cache", Use::training},

    {"_name_or_path", Use::file},
    {"name_or_path", Use::file},
    {"_commit_hash", Use::file},
    {"transformers_version", Use::file},
    {"gradient_checkpointing", Use::file},
    {"return_dict", Use::file},
    {"return_dict_in_generate", Use::file},
    {"output_hidden_states", Use::file},
    {"output_attentions", Use::file},
    {"output_scores", Use::file},
    {"tie_last_hidden_states", Use::file},
    {"attn_implementation", Use::file},
    {"_attn_implementation", Use::file},
    {"_attn_implementation_internal", Use::file},
    {"_experts_implementation", Use::file},
    {"experts_implementation", Use::file},
    {"distributed_config", Use::file},

    {"is_encoder_decoder", Use::fixed, "[false, null]"},
    // These are no members of the classes, but any config may have them: masks, caches and file
    // names depend on them.
    {"is_causal", Use::fixed, "[true, null]"},
    {"attention_chunk_size", Use::fixed, "[null]"},
    {"kv_sharing_modes", Use::fixed, "[null]"},
    {"fusion_config", Use::fixed, "[{}, null]"},
    {"transformers_weights", Use::fixed, "[null]"},
    {"quantization_config", Use::fixed, "[null]"},
    {"compression_config", Use::fixed, "[null]"},
    {"per_layer_config", Use::fixed, "[{}, null]"},
    // Points to the directory's own code, whose computation is unknown.
    {"auto_map", Use::fixed, "[{}, null]"},
    {"sliding_window", Use::fixed, "[null]"},
    {"layer_types", Use::fixed, "[null]"},
};

std::string quoted(std::span<const std::string_view> names) {
  std::string text;
  for (const auto name : names) text += fmt::format("{}\"{}\"", text.empty() ? "" : " or ", name);
  return text;
}

}  // namespace

HuggingFaceConfig::HuggingFaceConfig(std::string_view text, std::string_view model_type,
                                     std::span<const std::string_view> classes,
                                     HuggingFaceKeys keys)
    : keys_(keys) {
  auto parsed = std::make_shared<json>(parse_json(text, "config.json"));
  if (!parsed->is_object()) throw RequestError("needs an object of keys");
  json_ = std::move(parsed);
  if (!gives("model_type")) {
    refuse("model_type", fmt::format("needs \"{}\"", model_type));
  } else if (at("model_type") != model_type) {
    // Stop here: every key of another family would be one more problem.
    throw RequestError(
        fmt::format("/model_type: {}: needs \"{}\"; this is the config of another "
                    "kind of model",
                    shown_value(at("model_type")), model_type));
  }
  if (gives("architectures")) {
    const json& list = at("architectures");
    const bool fits = list.is_array() && std::ranges::all_of(list, [&](const json& name) {
                        return std::ranges::any_of(classes, [&](auto c) { return name == c; });
                      });
    if (!fits) {
      throw RequestError(
          fmt::format("/architectures: {}: needs {}", shown_value(list), quoted(classes)));
    }
  }
  check_keys();
}

void HuggingFaceConfig::check_keys() {
  for (const auto& [key, value] : json_->items()) {
    const HuggingFaceKey* known = find(key);
    if (known == nullptr) {
      unread_.push_back(key);
    } else if (known->use == Use::fixed) {
      const json accepted = parse_json(known->accepted, "accepted");
      if (std::ranges::find(accepted, value) != accepted.end()) continue;
      std::string list;
      for (const json& one : accepted) list += (list.empty() ? "" : " or ") + json_text(one);
      refuse(key, fmt::format("not supported; only {} is", list));
    }
    if (problems_.size() == 20) break;  // limits the output for a hostile file
  }
}

const HuggingFaceKey* HuggingFaceConfig::find(std::string_view key) const {
  const std::span<const HuggingFaceKey> tables[] = {keys_.own, keys_.shared, common};
  for (const auto table : tables) {
    const auto row = std::ranges::find(table, key, &HuggingFaceKey::name);
    if (row != table.end()) return &*row;
  }
  return nullptr;
}

const json& HuggingFaceConfig::at(std::string_view key) const {
  static const json none;
  const auto it = json_->find(key);
  return it == json_->end() ? none : *it;
}

bool HuggingFaceConfig::gives(std::string_view key) const {
  return !at(key).is_null();
}

bool HuggingFaceConfig::gives_members(std::string_view key) const {
  return gives(key) && !at(key).empty();
}

void HuggingFaceConfig::refuse(std::string_view key, const std::string& what) {
  const auto it = json_->find(key);
  problems_.push_back(fmt::format("/{}: {}: {}", printable(key),
                                  it == json_->end() ? "is missing" : shown_value(*it), what));
}

bool HuggingFaceConfig::is_missing(std::string_view key) const {
  return !json_->contains(key);
}

std::int64_t HuggingFaceConfig::size(std::string_view key, std::string_view other) {
  if (!other.empty() && json_->contains(other)) {
    if (!json_->contains(key)) return size(other);
    if (at(key) != at(other)) refuse(other, fmt::format("/{} says {}", key, shown_value(at(key))));
  }
  const auto value = as_size(at(key));
  if (!value) refuse(key, size_rule);
  return value.value_or(1);
}

std::int64_t HuggingFaceConfig::size_or(std::string_view key, std::int64_t otherwise) {
  return gives(key) ? size(key) : otherwise;
}

std::int64_t HuggingFaceConfig::whole_or(std::string_view key, std::int64_t otherwise) const {
  const json& value = at(key);
  if (!value.is_number_integer()) return otherwise;
  if (value.is_number_unsigned()) {
    constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
    return static_cast<std::int64_t>(std::min(most, value.get<std::uint64_t>()));
  }
  return value.get<std::int64_t>();
}

double HuggingFaceConfig::number_or(std::string_view key, double otherwise) {
  if (!json_->contains(key)) return otherwise;
  const auto value = as_positive(at(key));
  if (!value) refuse(key, positive_rule);
  return value.value_or(otherwise);
}

double HuggingFaceConfig::number_from_zero_or(std::string_view key, double otherwise) {
  return at(key) == 0 ? 0 : number_or(key, otherwise);
}

std::vector<std::int64_t> HuggingFaceConfig::numbers_below(std::string_view key, std::int64_t end) {
  std::vector<std::int64_t> numbers;
  if (!gives(key)) return numbers;
  const json& list = at(key);
  const auto fits = [](const json& one) { return one.is_number_unsigned(); };
  if (!list.is_array() || !std::ranges::all_of(list, fits)) {
    refuse(key, "needs a list of whole numbers from 0");
    return numbers;
  }
  for (const json& one : list) {
    if (one < end) numbers.push_back(one.get<std::int64_t>());
  }
  return numbers;
}

bool HuggingFaceConfig::flag_or(std::string_view key, bool otherwise) {
  if (!json_->contains(key)) return otherwise;
  if (at(key).is_boolean()) return at(key).get<bool>();
  refuse(key, "needs true or false");
  return otherwise;
}

bool HuggingFaceConfig::words_begin_with(std::string_view key,
                                         std::initializer_list<std::string_view> beginnings) const {
  if (!gives(key)) return true;
  const json& value = at(key);
  return value.is_object() && std::ranges::all_of(value, [&](const json& word) {
           return word.is_string() &&
                  std::ranges::any_of(beginnings, [&](std::string_view beginning) {
                    return word.get_ref<const std::string&>().starts_with(beginning);
                  });
         });
}

void HuggingFaceConfig::require_word(std::string_view key,
                                     std::initializer_list<std::string_view> names) {
  if (!json_->contains(key)) return;
  if (std::ranges::any_of(names, [&](auto name) { return at(key) == name; })) return;
  refuse(key, fmt::format("not supported; only {} is", quoted({names.begin(), names.size()})));
}

std::optional<std::vector<std::int64_t>> HuggingFaceConfig::layers_of(std::string_view key,
                                                                      std::string_view word,
                                                                      std::string_view other,
                                                                      std::int64_t count) {
  if (!gives(key)) return std::nullopt;
  const json& list = at(key);
  std::vector<std::int64_t> layers;
  const bool fits =
      list.is_array() && std::ssize(list) == count &&
      std::ranges::all_of(list, [&](const json& one) { return one == word || one == other; });
  if (!fits) {
    refuse(key, fmt::format("needs a list of {}, \"{}\" or \"{}\"", count, other, word));
    return layers;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (list[static_cast<std::size_t>(i)] == word) layers.push_back(i);
  }
  return layers;
}

void HuggingFaceConfig::require_whole(std::string_view key, bool nullable) {
  if (is_missing(key) || at(key).is_number_integer() || (nullable && at(key).is_null())) return;
  refuse(key, nullable ? "needs a whole number or null" : "needs a whole number");
}

std::optional<std::int64_t> HuggingFaceConfig::token_below(std::string_view key,
                                                           std::int64_t vocabulary) {
  if (!gives(key)) return std::nullopt;
  const json& value = at(key);
  const bool whole =
      value.is_number_integer() && !(value.is_number_unsigned() && value > largest_size);
  const std::int64_t token = whole ? value.get<std::int64_t>() : vocabulary;
  if (token >= -vocabulary && token < vocabulary) return token < 0 ? token + vocabulary : token;
  refuse(key, fmt::format("needs a token of the vocabulary, 0 to {}", vocabulary - 1));
  return std::nullopt;
}

void HuggingFaceConfig::finish() const {
  if (!problems_.empty()) throw RequestError(problems_);
}

std::string HuggingFaceConfig::kept(bool conversion) const {
  json kept = json::object();
  for (const auto& [key, value] : json_->items()) {
    const HuggingFaceKey* known = find(key);
    const bool goes = known == nullptr || known->use == Use::weights ||
                      (conversion && (known->use == Use::training || known->use == Use::fixed));
    if (goes) kept[key] = value;
  }
  return json_text(kept);
}

}  // namespace trident

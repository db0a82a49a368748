#include "models/hugging_face_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "settings/config.h"
#include "settings/rope_types.h"

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

// A value of a file as shown in messages.
std::string shown(const json& value) {
  return printable(json_text(value), 80);
}

std::string quoted(std::span<const std::string_view> names) {
  std::string text;
  for (const auto name : names) text += fmt::format("{}\"{}\"", text.empty() ? "" : " or ", name);
  return text;
}

constexpr std::int64_t kLargest = 1'000'000'000;

std::optional<std::int64_t> as_size(const json& value) {
  if (!value.is_number_integer() || value < 1 || value > kLargest) return std::nullopt;
  return value.get<std::int64_t>();
}

std::optional<double> as_positive(const json& value) {
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0) {
    return std::nullopt;
  }
  return value.get<double>();
}

constexpr auto kSizes = "needs a whole number from 1 to 1000000000";
constexpr auto kNumbers = "needs a number above 0";

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
                    shown(at("model_type")), model_type));
  }
  if (gives("architectures")) {
    const json& list = at("architectures");
    const bool fits = list.is_array() && std::ranges::all_of(list, [&](const json& name) {
                        return std::ranges::any_of(classes, [&](auto c) { return name == c; });
                      });
    if (!fits) {
      throw RequestError(fmt::format("/architectures: {}: needs {}", shown(list), quoted(classes)));
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
                                  it == json_->end() ? "is missing" : shown(*it), what));
}

bool HuggingFaceConfig::is_missing(std::string_view key) const {
  return !json_->contains(key);
}

std::int64_t HuggingFaceConfig::size(std::string_view key, std::string_view other) {
  if (!other.empty() && json_->contains(other)) {
    if (!json_->contains(key)) return size(other);
    if (at(key) != at(other)) refuse(other, fmt::format("/{} says {}", key, shown(at(key))));
  }
  const auto value = as_size(at(key));
  if (!value) refuse(key, kSizes);
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
  if (!value) refuse(key, kNumbers);
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
  const bool whole = value.is_number_integer() && !(value.is_number_unsigned() && value > kLargest);
  const std::int64_t token = whole ? value.get<std::int64_t>() : vocabulary;
  if (token >= -vocabulary && token < vocabulary) return token < 0 ? token + vocabulary : token;
  refuse(key, fmt::format("needs a token of the vocabulary, 0 to {}", vocabulary - 1));
  return std::nullopt;
}

namespace {

// The members of rope_parameters, of transformers 5.24, and what a value has to be.
enum class RopeValue : std::uint8_t { factor, size, number, number_or_zero, flag };
struct RopeMember {
  std::string_view name;
  RopeValue value;
  bool required = false;  // by transformers, where the type reads it
};
constexpr RopeMember rope_members[] = {
    {"factor", RopeValue::factor, true},
    {"original_max_position_embeddings", RopeValue::size},
    {"low_freq_factor", RopeValue::number, true},
    {"high_freq_factor", RopeValue::number, true},
    {"beta_fast", RopeValue::number},
    {"beta_slow", RopeValue::number},
    {"truncate", RopeValue::flag},
    {"attention_factor", RopeValue::number},
    {"mscale", RopeValue::number_or_zero},
    {"mscale_all_dim", RopeValue::number_or_zero},
};

// Whether the value is of that kind; "" or the rule that it breaks.
std::string rope_rule(RopeValue kind, const json& value) {
  switch (kind) {
    case RopeValue::factor:
      return as_positive(value).value_or(0) >= 1 ? "" : "needs a number from 1";
    case RopeValue::size:
      return as_size(value) ? "" : kSizes;
    case RopeValue::number:
      return as_positive(value) ? "" : kNumbers;
    case RopeValue::number_or_zero:
      return as_positive(value) || value == 0 ? "" : "needs a number from 0";
    case RopeValue::flag:
      return value.is_boolean() ? "" : "needs true or false";
  }
  return "";
}

// model.rope_scaling with the values of a config that gives none, all but the positions, which only
// some types have.
json usual_scaling() {
  const RopeScalingConfig usual;
  return {{"rope_type", usual.rope_type},
          {"factor", usual.factor},
          {"low_freq_factor", usual.low_freq_factor},
          {"high_freq_factor", usual.high_freq_factor},
          {"beta_fast", usual.beta_fast},
          {"beta_slow", usual.beta_slow},
          {"truncate", usual.truncate},
          {"attention_factor", usual.attention_factor},
          {"mscale", usual.mscale},
          {"mscale_all_dim", usual.mscale_all_dim}};
}

}  // namespace

// rope_scaling of transformers 4 and rope_parameters of 5 have the same members. `base`: the one
// that holds if there is none in it.
json HuggingFaceConfig::rope(std::string_view key, double base, std::int64_t positions) {
  const json& values = at(key);
  json result{{"rotary_base", base}, {"rope_scaling", usual_scaling()}};
  if (!values.is_object()) {
    refuse(key, "needs an object, or null");
    return result;
  }
  const auto problem = [&](std::string_view name, const std::string& what) {
    const bool missing = !values.contains(name);
    problems_.push_back(fmt::format("/{}/{}: {}: {}", key, printable(name),
                                    missing ? "is missing" : shown(values[name]), what));
  };
  const std::string_view named = values.contains("rope_type") ? "rope_type" : "type";
  const json name = values.value(named, json("default"));
  const RopeType* const type = name.is_string() ? find_rope_type(name.get<std::string>()) : nullptr;
  if (type == nullptr) {
    std::string list;
    for (const RopeType& one : rope_types)
      list += fmt::format("{}{}", list.empty() ? "" : ", ", one.name);
    problem(named, "not supported; only " + list + " are");
    return result;
  }
  if (named == "rope_type" && values.contains("type") && values["type"] != name) {
    problem("type", fmt::format("/{}/rope_type says {}", key, shown(name)));
  }
  json& scaling = result["rope_scaling"];
  scaling["rope_type"] = type->name;
  std::set<std::string_view> given;
  for (const auto& [member, value] : values.items()) {
    const auto* const known = std::ranges::find(rope_members, member, &RopeMember::name);
    if (member == "rope_type" || member == "type") continue;
    if (member == "rope_theta") {
      const auto theta = as_positive(value);
      if (!theta) {
        problem(member, kNumbers);
      } else if (gives("rope_theta") && base != *theta) {
        problem(member,
                fmt::format("the base of rotary positions is {} elsewhere in this file", base));
      } else {
        result["rotary_base"] = *theta;
      }
    } else if (known != std::end(rope_members) && type->reads(member)) {
      // transformers takes null for the factor as the quotient of the positions (yarn).
      const bool left_out = value.is_null() && !known->required &&
                            known->value != RopeValue::flag && known->value != RopeValue::size;
      const bool quotient = value.is_null() && member == "factor" && type->reads("beta_fast");
      if (left_out || quotient) continue;
      const std::string rule = rope_rule(known->value, value);
      if (!rule.empty()) problem(member, rule);
      scaling[member] = value;
      given.insert(known->name);
    } else if (member == "partial_rotary_factor" || member == "factor") {
      if (!value.is_null() && value != 1) problem(member, "not supported; only 1 is");
    } else if (member != "original_max_position_embeddings" && member != "finetuned") {
      problem(member, "not supported; leave it out");
    }
  }
  complete_rope(key, *type, values, given, positions, scaling);
  return result;
}

// Adds what transformers fills in, and refuses what it needs.
void HuggingFaceConfig::complete_rope(std::string_view key, const RopeType& type,
                                      const json& values, const std::set<std::string_view>& given,
                                      std::int64_t positions, json& scaling) {
  constexpr auto kOriginal = "original_max_position_embeddings";
  if (type.reads(kOriginal)) {
    // One at the top level comes before one inside.
    if (gives(kOriginal)) {
      scaling[kOriginal] = size(kOriginal);
    } else if (!scaling.contains(kOriginal)) {
      scaling[kOriginal] = positions;
    }
  }
  for (const RopeMember& member : rope_members) {
    if (!member.required || !type.reads(member.name) || given.contains(member.name)) continue;
    const auto original = as_size(scaling.value(kOriginal, json()));
    if (member.name == "factor" && values.contains("factor") && original &&
        positions >= *original) {
      scaling["factor"] = static_cast<double>(positions) / static_cast<double>(*original);
    } else {
      problems_.push_back(fmt::format("/{}/{}: is missing: rope_type \"{}\" needs it", key,
                                      member.name, type.name));
    }
  }
}

json HuggingFaceConfig::rotary_positions(std::int64_t positions, double base) {
  const double alone = gives("rope_theta") ? number_or("rope_theta", base) : base;
  const json plain{{"rotary_base", alone}, {"rope_scaling", usual_scaling()}};
  const bool scaled = gives_members("rope_scaling");
  if (!scaled) {
    return gives("rope_parameters") ? rope("rope_parameters", alone, positions) : plain;
  }
  const std::size_t before = problems_.size();
  const json read = rope("rope_scaling", alone, positions);
  if (!gives("rope_parameters")) return read;
  const json other = rope("rope_parameters", alone, positions);
  if (problems_.size() == before && other["rotary_base"] != read["rotary_base"]) {
    refuse("rope_scaling",
           fmt::format("replaces all of rope_parameters, with {} as the base of rotary positions, "
                       "but rope_parameters has {}; leave one of the two out",
                       read["rotary_base"].get<double>(), other["rotary_base"].get<double>()));
  } else if (problems_.size() == before && other != read) {
    refuse("rope_scaling",
           "replaces all of rope_parameters, which differ; leave one of the two out");
  }
  return read;
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

// A Hugging Face config.json. transformers gives every key that it doesn't find a default, and
// ignores every key that its class for the family doesn't know. So here a key is read, or known to
// change nothing of what the model computes, or refused by its name where transformers would
// compute something else; and keys that transformers doesn't know go along with the weights
// (tests/peers/config_peer.py holds the tables against its classes).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

enum class HuggingFaceUse : std::uint8_t {
  // Read by the architecture: sizes, activation, epsilon.
  model,
  // How the weights are used: ids of special tokens, labels, settings of generation. It changes
  // nothing that is computed here, and goes wherever the weights go.
  weights,
  // How transformers would train: dropout, initial weights. A conversion keeps it; a run has its
  // own and writes that.
  training,
  // Of the file, or of the program that wrote it. Not kept.
  file,
  // Only values that stand for what is computed here anyway.
  fixed,
};

struct HuggingFaceKey {
  std::string_view name;
  HuggingFaceUse use;
  std::string_view accepted = {};  // fixed: a JSON list of the values that are accepted
};

class HuggingFaceConfig {
 public:
  // RequestError where the text is no JSON object, or of another model_type or architecture than
  // `classes`. `own` are the keys of the family beside those that every config.json may have.
  // Refused values are collected.
  HuggingFaceConfig(std::string_view text, std::string_view model_type,
                    std::span<const std::string_view> classes, std::span<const HuggingFaceKey> own);

  // Reports "/key: VALUE: what".
  void refuse(std::string_view key, const std::string& what);
  // There, and not null.
  bool gives(std::string_view key) const;
  // A whole number above 0. `other` is another name of the same key; both together have to agree.
  // Where neither is there the key is refused, and the result is 1.
  std::int64_t size(std::string_view key, std::string_view other = {});
  std::int64_t size_or(std::string_view key, std::int64_t otherwise);
  // A finite number above 0.
  double number_or(std::string_view key, double otherwise);
  bool flag_or(std::string_view key, bool otherwise);
  // One of `names`, or not there.
  void require_word(std::string_view key, std::initializer_list<std::string_view> names);
  // A token of the vocabulary; those below 0 count from its end, as for torch.nn.Embedding. nullopt
  // where it isn't there.
  std::optional<std::int64_t> token_below(std::string_view key, std::int64_t vocabulary);
  // The base of rotary positions (rope_theta, by itself or in rope_parameters or rope_scaling),
  // of the kind "default". rope_scaling stands in place of rope_parameters, base included
  // (transformers 5.24, modeling_rope_utils.py); where that makes another base, both are refused.
  double rotary_base();
  // RequestError with all problems.
  void finish() const;

  // A JSON object of the keys to keep where the weights are written again: unread() and those of
  // use `weights`, for a conversion also those of `training` and `fixed`.
  std::string kept(bool conversion) const;
  // Keys that neither table has: transformers doesn't know them, so they change nothing.
  const std::vector<std::string>& unread() const { return unread_; }

 private:
  const HuggingFaceKey* find(std::string_view key) const;
  const nlohmann::json& at(std::string_view key) const;
  void check_keys();
  double rope(std::string_view key, double otherwise);

  std::shared_ptr<const nlohmann::json> json_;
  std::span<const HuggingFaceKey> own_;
  std::vector<std::string> problems_, unread_;
};

}  // namespace trident

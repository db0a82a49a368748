// Reads a Hugging Face config.json. transformers gives every missing key a default and ignores
// every key that its class for the family doesn't know. So HuggingFaceConfig
// reads a key, or knows that the key doesn't change the model's computation, or refuses its value,
// as transformers would compute something else. Keys that transformers doesn't know are kept with
// the weights. tests/peers/config_peer.py compares the tables with
// transformers' classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trident {

enum class HuggingFaceUse : std::uint8_t {
  // The architecture reads it: sizes, activation, epsilon.
  model,
  // It says how the weights are used: ids of special tokens, labels, settings of generation. It
  // doesn't change the computation here, and is kept with the weights.
  weights,
  // It says how transformers would train: dropout, initial weights. A conversion keeps it; a
  // training run writes its own values.
  training,
  // It describes the file or the program that wrote it. It is not kept.
  file,
  // Only values that describe the computation here are accepted.
  fixed,
};

struct HuggingFaceKey {
  std::string_view name;
  HuggingFaceUse use;
  std::string_view accepted = {};  // for `fixed`: a JSON list of the accepted values
};

// The keys of a family in addition to those that every config.json may have: its own, and those
// that it shares with related families. A row of `own` comes before one of `shared`.
struct HuggingFaceKeys {
  std::span<const HuggingFaceKey> own, shared = {};
};

class HuggingFaceConfig {
 public:
  // Throws RequestError if the text is not a JSON object, or has another model_type or an
  // architecture outside `classes`. Refused values are collected until finish().
  HuggingFaceConfig(std::string_view text, std::string_view model_type,
                    std::span<const std::string_view> classes, HuggingFaceKeys keys);

  // Adds the problem "/key: VALUE: what".
  void refuse(std::string_view key, const std::string& what);
  void add_problem(std::string problem) { problems_.push_back(std::move(problem)); }
  std::size_t problems() const { return problems_.size(); }
  // The key's value; null if the key is missing.
  const nlohmann::json& at(std::string_view key) const;
  // Whether the key is present and not null.
  bool gives(std::string_view key) const;
  bool is_missing(std::string_view key) const;
  bool gives_members(std::string_view key) const;  // and isn't empty
  // An integer above 0. `other` is another name of the same key; if both are present, they have to
  // agree. If neither is present, the key is refused and the result is 1.
  std::int64_t size(std::string_view key, std::string_view other = {});
  std::int64_t size_or(std::string_view key, std::int64_t otherwise);
  // The whole number, or `otherwise` if the key is missing or its value is none.
  std::int64_t whole_or(std::string_view key, std::int64_t otherwise) const;
  // A finite number above 0.
  double number_or(std::string_view key, double otherwise);
  double number_from_zero_or(std::string_view key, double otherwise);
  bool flag_or(std::string_view key, bool otherwise);
  // A list of whole numbers from 0 on, without those from `end` on; {} if the key is missing or
  // null.
  std::vector<std::int64_t> numbers_below(std::string_view key, std::int64_t end);
  // The value has to be one of `names`, or missing.
  void require_word(std::string_view key, std::initializer_list<std::string_view> names);
  // Whether the key is missing, null, or an object of texts each of which begins with one of these.
  bool words_begin_with(std::string_view key,
                        std::initializer_list<std::string_view> beginnings) const;
  // The value has to be a whole number, null if `nullable`, or missing.
  void require_whole(std::string_view key, bool nullable);
  // A token of the vocabulary. Negative tokens count from its end, as for torch.nn.Embedding.
  // nullopt if the key is missing.
  std::optional<std::int64_t> token_below(std::string_view key, std::int64_t vocabulary);
  // The layers whose entry in the list is `word`; all entries have to be `word` or `other`, one for
  // each of `count` layers. nullopt if the key is missing or null.
  std::optional<std::vector<std::int64_t>> layers_of(std::string_view key, std::string_view word,
                                                     std::string_view other, std::int64_t count);
  // Throws RequestError with all problems, if there are any.
  void finish() const;

  // A JSON object of the keys to keep when the weights are written again: unread() and the keys of
  // use `weights`, for a conversion also those of `training` and `fixed`.
  std::string kept(bool conversion) const;
  // Keys in neither table. transformers doesn't know them, so they have no effect.
  const std::vector<std::string>& unread() const { return unread_; }

 private:
  const HuggingFaceKey* find(std::string_view key) const;
  void check_keys();

  std::shared_ptr<const nlohmann::json> json_;
  HuggingFaceKeys keys_;
  std::vector<std::string> problems_, unread_;
};

}  // namespace trident

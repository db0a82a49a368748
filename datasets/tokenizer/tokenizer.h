// A Hugging Face tokenizer.json: text to ids and back, equal to the `tokenizers` package id by id.
//
// A text goes through its parts in this order: raw added tokens are found; what is between them is
// normalized; normalized added tokens are found in that; the rest is cut into pieces; the model
// encodes each. Registry that this program doesn't know are refused by name, as are keys of theirs.
// Truncation and padding are left out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

class Tokenizer {
 public:
  // From the file's text; errors begin with `name`. RequestError.
  Tokenizer(std::string_view text, const std::string& name);
  Tokenizer(Tokenizer&&) noexcept;
  ~Tokenizer();

  // What one thread keeps between texts; may be used with this tokenizer alone.
  class Memory {
   public:
    explicit Memory(const Tokenizer& tokenizer);
    Memory(Memory&&) noexcept;
    ~Memory();

   private:
    friend class Tokenizer;
    struct Parts;
    std::unique_ptr<Parts> parts_;
  };

  // Appends the ids of `text`, which has to be UTF-8 (base/utf8.h), without surrounding ones.
  // `continued`: the text goes on after text that was encoded apart, cut at next_cut().
  void encode(std::string_view text, Memory& memory, std::vector<std::int32_t>& ids,
              bool continued = false) const;
  // The pieces of `text` that the model would get, if it needed no normalizing and no added token
  // were in it; of byte-level tokenizers as bytes. What a vocabulary is trained on.
  void split(std::string_view text, Memory& memory,
             const std::function<void(std::string_view piece)>& visit,
             bool continued = false) const;
  // With the tokens that the post-processor puts around a text, as transformers does it.
  std::vector<std::int32_t> encode_prompt(std::string_view text) const;
  std::span<const std::int32_t> before_prompt() const;
  std::span<const std::int32_t> after_prompt() const;

  // The first place after `from` and before the end at which text may be cut such that both parts,
  // encoded apart, have the ids of the whole; npos where there is none, or none can be told. What
  // isn't UTF-8 in `text` has no such place beside it.
  std::size_t next_cut(std::string_view text, std::size_t from, Memory& memory) const;

  // Ids that aren't a token's are left out, and special tokens if asked.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = true) const;

  std::int64_t vocab_size() const;  // the largest id, plus one
  std::optional<std::int32_t> id_of(std::string_view token) const;
  // nullopt where no token has it.
  std::optional<std::string> token_of(std::int32_t id) const;
  bool is_special(std::int32_t id) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace trident

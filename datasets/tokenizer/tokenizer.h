// A tokenizer, read from a Hugging Face tokenizer.json: text to ids and back. The ids equal those
// of the `tokenizers` package.
//
// A text goes through these steps: find the raw added tokens; normalize the text between them; find
// the normalized added tokens in it; split the rest into pieces; encode each piece with the model.
// Types and keys that this program doesn't know are errors that name them. Truncation and padding
// aren't applied.
//
// A Tokenizer is read-only and thread-safe. Each thread needs its own Memory.
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
  // Reads the text of the file. RequestError, with messages that begin with `name`.
  Tokenizer(std::string_view text, const std::string& name);
  Tokenizer(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The state that one thread keeps between texts, for one tokenizer.
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

  // Appends the ids of `text`, which must be UTF-8 (base/utf8.h), without the post-processor's
  // tokens. `continued`: earlier text of the document was encoded separately, up to a
  // next_split_point(). Error if the model has no token for a character, or a regular expression
  // fails.
  void encode(std::string_view text, Memory& memory, std::vector<std::int32_t>& ids,
              bool continued = false) const;
  // Calls visit() for the pieces that the model would get, without normalization and without a
  // search for added tokens. The pieces of byte-level tokenizers are bytes. Vocabularies are
  // trained on them.
  void split(std::string_view text, Memory& memory,
             const std::function<void(std::string_view piece)>& visit,
             bool continued = false) const;
  // Returns the ids with the post-processor's tokens before and after them, as transformers does.
  std::vector<std::int32_t> encode_prompt(std::string_view text) const;
  std::span<const std::int32_t> before_prompt() const;
  std::span<const std::int32_t> after_prompt() const;

  // Returns the first place after `from` and before the end where `text` may be split so that both
  // parts, encoded separately, have the ids of the complete text; npos if no place is certain.
  // `text` may have invalid UTF-8; it is never split next to invalid bytes.
  std::size_t next_split_point(std::string_view text, std::size_t from, Memory& memory) const;

  // Leaves out ids without a token and, with skip_special, special tokens.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = true) const;

  std::int64_t vocab_size() const;  // the largest id, plus one
  std::optional<std::int32_t> id_of(std::string_view token) const;
  // Returns nullopt if no token has the id.
  std::optional<std::string> token_of(std::int32_t id) const;
  bool is_special(std::int32_t id) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace trident

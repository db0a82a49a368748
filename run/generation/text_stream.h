// Decodes tokens into text as they arrive. Gives out text once later tokens can't change it, and
// ends at a stop string. Used by one thread at a time; throws nothing of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "datasets/tokenizer/tokenizer.h"

namespace trident {

class TextStream {
 public:
  // `tokenizer` must outlive the stream; nullptr means that tokens are bytes. The text of `prompt`
  // is not given out. The strings in `stop` must not be empty.
  TextStream(const Tokenizer* tokenizer, const std::vector<std::int32_t>& prompt,
             std::vector<std::string> stop);

  // Adds a token and returns the text that is now final. Holds back characters whose bytes are
  // incomplete, and text that may become a stop string.
  std::string add(std::int32_t token);
  // Returns the text held back so far; call it after the last token.
  std::string finish();
  // True after a stop string; the stop string and later text are not given out.
  bool stopped() const { return stopped_; }

 private:
  void append(std::int32_t token);
  std::string decoded(std::size_t begin, std::size_t end) const;  // tokens_[begin, end)
  // Appends the text of the newest tokens to held_. With `all` includes an incomplete character.
  void take(bool all);
  // Drops tokens that no longer affect the text of later tokens.
  void shorten();
  std::string show(std::size_t bytes);  // takes that many bytes from held_

  const Tokenizer* tokenizer_;
  // The last tokens: enough of them that the newest decode as they would among all tokens.
  std::vector<std::int32_t> tokens_;
  std::string taken_;        // the part of their text that take() has moved to held_
  std::size_t waiting_ = 0;  // tokens added since take() last moved all text
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace trident

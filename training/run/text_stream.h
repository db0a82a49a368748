// The text of a growing list of tokens, as far as it can't change any more, up to a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/tokenizer/tokenizer.h"

namespace trident {

class TextStream {
 public:
  // `tokenizer`: nullptr for bytes; outlives the stream. `prompt`: its text isn't given again.
  TextStream(const Tokenizer* tokenizer, std::vector<std::int32_t> prompt,
             std::vector<std::string> stop);

  // What there is to show after one more token. Held back: characters whose bytes aren't all there,
  // and what may become a stop string.
  std::string add(std::int32_t token);
  // What was held back, when no more tokens come.
  std::string finish();
  // A stop string has come; it and what follows aren't given.
  bool stopped() const { return stopped_; }
  const std::string& text() const { return shown_; }  // all that has been given

 private:
  std::string decoded() const;

  const Tokenizer* tokenizer_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::string> stop_;
  std::size_t begin_ = 0;  // of the new text in decoded()
  std::string shown_;
  bool stopped_ = false;
};

}  // namespace trident

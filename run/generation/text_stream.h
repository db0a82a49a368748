// The text of a growing list of tokens, as far as it can't change any more, up to a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "datasets/tokenizer/tokenizer.h"

namespace trident {

class TextStream {
 public:
  // `tokenizer`: nullptr for bytes; outlives the stream. `prompt`: its text isn't given again.
  // `stop`: none is empty.
  TextStream(const Tokenizer* tokenizer, const std::vector<std::int32_t>& prompt,
             std::vector<std::string> stop);

  // What there is to show after one more token. Held back: characters whose bytes aren't all there,
  // and what may become a stop string.
  std::string add(std::int32_t token);
  // What was held back, when no more tokens come.
  std::string finish();
  // A stop string has come; it and what follows aren't given.
  bool stopped() const { return stopped_; }

 private:
  void append(std::int32_t token);
  std::string decoded(std::size_t begin, std::size_t end) const;  // of tokens_
  // Moves what the last tokens add to held_; `all`: half a character, too.
  void take(bool all);
  // Forgets tokens that no longer matter for the text of later ones.
  void shorten();
  std::string show(std::size_t bytes);  // of held_

  const Tokenizer* tokenizer_;
  // The last ones: enough before the new ones for these to have the text that they have among all.
  std::vector<std::int32_t> tokens_;
  std::string taken_;        // their text, as far as it has been taken
  std::size_t waiting_ = 0;  // tokens since
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace trident

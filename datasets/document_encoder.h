// The tokenizer and the options that turn documents into the tokens of a source.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "datasets/tokenizer/tokenizer.h"

namespace trident {

struct DocumentEncoder {
  // nullptr: the byte tokenizer. Every byte is a token, 256 ids.
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string tokenizer_text;  // its tokenizer.json; "" for the byte tokenizer
  // The token after each document. The byte tokenizer has no special token; its value is a line
  // end, and follows only documents that don't end with one.
  std::optional<std::int32_t> end_of_document;
  bool replace_errors = false;    // true: invalid UTF-8 becomes U+FFFD; false: it is an error
  std::string json_key = "text";  // the key or column of the text in .jsonl and .parquet
  // Text files may be split after any line, with any tokenizer.
  bool splits_after_lines = false;

  std::int64_t vocab_size() const { return tokenizer ? tokenizer->vocab_size() : 256; }
};

}  // namespace trident

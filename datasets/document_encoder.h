// How documents become the tokens of a source.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "datasets/tokenizer/tokenizer.h"

namespace trident {

struct DocumentEncoder {
  // nullptr: every byte is a token, 256 ids.
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string tokenizer_text;  // its tokenizer.json; "" for bytes
  // Follows each document. Of bytes, which have no such token, a line end where a document hasn't
  // one.
  std::optional<std::int32_t> end_of_document;
  bool replace_errors = false;    // U+FFFD for what isn't UTF-8; else that is an error
  std::string json_key = "text";  // of a document's text in .jsonl and .parquet
  // Text files may be cut after any line, whatever the tokenizer.
  bool cuts_after_lines = false;

  std::int64_t vocab_size() const { return tokenizer ? tokenizer->vocab_size() : 256; }
};

}  // namespace trident

// A text file under the byte tokenizer: token i is byte i, 256 ids, no special token.
// The source reads tokens when they are needed and doesn't map the file. So if the file is
// truncated while it is in use, the result is an error with its name; a map would end the process
// (SIGBUS).
#pragma once

#include "base/files/file.h"
#include "datasets/token_source.h"

namespace trident {

class TextSource : public TokenSource {
 public:
  // Opens the file. RequestError if it is missing, not a regular file or empty, or if vocab_size is
  // below 256.
  TextSource(const std::string& path, std::int64_t vocab_size);

  const std::string& path() const override { return file_.path(); }
  std::int64_t size() const override { return static_cast<std::int64_t>(file_.size()); }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;

 private:
  ReadFile file_;
};

}  // namespace trident

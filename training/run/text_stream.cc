#include "training/run/text_stream.h"

#include <algorithm>

#include "core/utf8.h"

namespace trident {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

TextStream::TextStream(const Tokenizer* tokenizer, std::vector<std::int32_t> prompt,
                       std::vector<std::string> stop)
    : tokenizer_(tokenizer), tokens_(std::move(prompt)), stop_(std::move(stop)) {
  begin_ = decoded().size();
}

std::string TextStream::decoded() const {
  if (tokenizer_ != nullptr) return tokenizer_->decode(tokens_);
  std::string bytes;
  for (const std::int32_t token : tokens_) bytes += static_cast<char>(token);
  return bytes;
}

std::string TextStream::add(std::int32_t token) {
  if (stopped_) return "";
  tokens_.push_back(token);
  std::string text = decoded();
  text.erase(0, std::min(begin_, text.size()));
  // Half a character is U+FFFD until the rest of it comes.
  if (tokenizer_ != nullptr) {
    while (text.ends_with(kReplacement)) text.resize(text.size() - kReplacement.size());
  }
  std::size_t end = text.size();
  for (const std::string& stop : stop_) {
    const std::size_t at = text.find(stop);
    if (at != std::string::npos) {
      stopped_ = true;
      end = std::min(end, at);
    }
  }
  for (const std::string& stop : stop_) {
    for (std::size_t n = std::min(stop.size() - 1, text.size()); !stopped_ && n > 0; --n) {
      if (text.ends_with(std::string_view(stop).substr(0, n))) {
        end = std::min(end, text.size() - n);
        break;
      }
    }
  }
  if (end <= shown_.size()) return "";
  const std::string more = text.substr(shown_.size(), end - shown_.size());
  shown_ += more;
  return more;
}

std::string TextStream::finish() {
  if (stopped_) return "";
  std::string text = decoded();
  text.erase(0, std::min(begin_, text.size()));
  if (text.size() <= shown_.size()) return "";
  const std::string more = text.substr(shown_.size());
  shown_ += more;
  return more;
}

}  // namespace trident

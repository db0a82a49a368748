#include "training/run/text_stream.h"

#include <algorithm>
#include <string_view>

#include "core/utf8.h"

namespace trident {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";
constexpr std::size_t kContext = 8;  // tokens before those whose text is new
// No character has so many tokens: what isn't whole by then never will be.
constexpr std::size_t kLongestWait = 8;

// `text` up to the character at its end that isn't all there.
std::size_t whole_characters(std::string_view text, bool bytes) {
  if (!bytes) {  // half a character is decoded as U+FFFD
    std::size_t end = text.size();
    while (text.substr(0, end).ends_with(kReplacement)) end -= kReplacement.size();
    return end;
  }
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    const auto lead = static_cast<unsigned char>(text[text.size() - n]);
    if ((lead & 0xc0) == 0x80) continue;
    const std::size_t length = lead < 0xc2 || lead > 0xf4 ? 1
                               : lead < 0xe0              ? 2
                               : lead < 0xf0              ? 3
                                                          : 4;
    return length > n ? text.size() - n : text.size();
  }
  return text.size();
}

}  // namespace

TextStream::TextStream(const Tokenizer* tokenizer, const std::vector<std::int32_t>& prompt,
                       std::vector<std::string> stop)
    : tokenizer_(tokenizer), stop_(std::move(stop)) {
  const std::size_t last = std::min(prompt.size(), 4 * kContext);
  for (std::size_t i = prompt.size() - last; i < prompt.size(); ++i) append(prompt[i]);
  take(false);
  held_.clear();
}

void TextStream::append(std::int32_t token) {
  // Decoding leaves these out.
  if (tokenizer_ != nullptr && (tokenizer_->is_special(token) || !tokenizer_->token_of(token))) {
    return;
  }
  tokens_.push_back(token);
  ++waiting_;
}

void TextStream::take(bool all) {
  const auto decoded = [&] {
    if (tokenizer_ != nullptr) return tokenizer_->decode(tokens_);
    std::string bytes;
    for (const std::int32_t token : tokens_) bytes += static_cast<char>(token);
    return bytes;
  };
  const std::string text = decoded();
  all = all || waiting_ > kLongestWait;
  const std::size_t end = all ? text.size() : whole_characters(text, tokenizer_ == nullptr);
  if (end > taken_) {
    held_.append(text, taken_, end - taken_);
    taken_ = end;
  }
  if (end < text.size()) return;
  waiting_ = 0;
  if (tokens_.size() < 2 * kContext) return;
  tokens_.erase(tokens_.begin(), tokens_.end() - kContext);
  taken_ = decoded().size();
}

std::string TextStream::show(std::size_t bytes) {
  const std::string more = held_.substr(0, bytes);
  held_.erase(0, bytes);
  shown_ += more;
  return more;
}

std::string TextStream::add(std::int32_t token) {
  if (stopped_) return "";
  append(token);
  take(false);
  std::size_t end = held_.size();
  for (const std::string& stop : stop_) {
    const std::size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    stopped_ = true;
    end = std::min(end, at);
  }
  for (const std::string& stop : stop_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); !stopped_ && n > 0; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) {
        end = std::min(end, held_.size() - n);
        break;
      }
    }
  }
  return show(end);
}

std::string TextStream::finish() {
  if (stopped_) return "";
  take(true);
  return show(held_.size());
}

}  // namespace trident

#include "run/generation/text_stream.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "base/utf8.h"

namespace trident {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";
constexpr std::size_t kContext = 8;  // tokens kept before the new tokens
// No character has this many tokens: a character that is incomplete by then stays so.
constexpr std::size_t kLongestWait = 8;

// The length of `text` without an incomplete character at its end.
std::size_t whole_characters(std::string_view text, bool bytes) {
  if (!bytes) {  // an incomplete character is decoded as U+FFFD
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
  for (const std::int32_t token : prompt) {
    append(token);
    take(false);
  }
  held_.clear();
}

void TextStream::append(std::int32_t token) {
  // Decoding ignores these tokens.
  if (tokenizer_ == nullptr ? token > 255
                            : tokenizer_->is_special(token) || !tokenizer_->token_of(token)) {
    return;
  }
  tokens_.push_back(token);
  ++waiting_;
}

std::string TextStream::decoded(std::size_t begin, std::size_t end) const {
  const auto some = std::span(tokens_).subspan(begin, end - begin);
  if (tokenizer_ != nullptr) return tokenizer_->decode(some);
  std::string bytes;
  for (const std::int32_t token : some) bytes += static_cast<char>(token);
  return bytes;
}

void TextStream::take(bool all) {
  std::string text = decoded(0, tokens_.size());
  if (!text.starts_with(taken_)) {
    // The new tokens would change text that was given out already: they continue a sequence of byte
    // tokens and make it invalid. So they are decoded alone.
    tokens_.erase(tokens_.begin(), tokens_.end() - static_cast<std::ptrdiff_t>(waiting_));
    taken_.clear();
    text = decoded(0, tokens_.size());
  }
  all = all || waiting_ > kLongestWait;
  const std::size_t end = all ? text.size() : whole_characters(text, tokenizer_ == nullptr);
  if (end > taken_.size()) {
    held_.append(text, taken_.size(), end - taken_.size());
    taken_ = text.substr(0, end);
  }
  if (end < text.size()) return;
  waiting_ = 0;
  shorten();
}

void TextStream::shorten() {
  const std::size_t count = tokens_.size();
  if (count < 2 * kContext) return;
  // Doesn't split a sequence of byte tokens, which decode only together. Decoding may drop a first
  // space.
  for (std::size_t k = count - kContext; k > 0; --k) {
    const std::string head = decoded(0, k), tail = decoded(k, count);
    if (taken_ != head + tail && taken_ != head + " " + tail) continue;
    tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(k));
    taken_ = tail;
    return;
  }
}

std::string TextStream::show(std::size_t bytes) {
  const std::string more = held_.substr(0, bytes);
  held_.erase(0, bytes);
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

#include "datasets/json_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "base/error.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace trident {
namespace {

// Returns `text` as one word of a shell command, quoted if necessary.
std::string shell_word(const std::string& text) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-./+,:@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// Returns a command that applies jq's `filter` to the file's JSON.
std::string jq(std::string_view filter, const SourceFile& file) {
  const char* unpack = file.compression == Compression::gzip   ? "gzip -dc "
                       : file.compression == Compression::zstd ? "zstd -dc --long=31 "
                                                               : nullptr;
  if (unpack == nullptr) return fmt::format("jq -c {} {}", filter, shell_word(file.path));
  return fmt::format("{}{} | jq -c {}", unpack, shell_word(file.path), filter);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Parses a line without recursion, to a depth of kMaxJsonDepth, and keeps only the wanted string.
class Scanner {
 public:
  Scanner(std::string_view line, const JsonDocumentOptions& options)
      : line_(line), options_(options) {
    if (line_.starts_with("\xef\xbb\xbf")) at_ = 3;
  }

  std::string text() {
    check_utf8();
    skip_space();
    if (peek() == '[') {
      throw RequestError(fmt::format(
          "isn't a JSON object, as each line has to be, but begins an array; if it is an "
          "array of objects, {} prints one object a line",
          jq("'.[]'", options_.file)));
    }
    if (at_ < line_.size() && peek() != '{') {
      value();
      end();
      throw RequestError("isn't a JSON object, as each line has to be");
    }
    while (value() || after_value()) {
    }
    end();
    const std::string key = printable(options_.key, 60);
    if (is_other_) throw RequestError(fmt::format("\"{}\" isn't a string", key));
    if (!text_) {
      throw RequestError(
          fmt::format("has no \"{}\"; data.json_key says which key has the text", key));
    }
    return std::move(*text_);
  }

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    throw RequestError(fmt::format("isn't JSON: byte {}: {}", at_ + 1, problem));
  }

  void check_utf8() const {
    const std::size_t at = invalid_utf8(line_);
    if (at == std::string_view::npos) return;
    throw RequestError(fmt::format("isn't JSON: byte {} of it, 0x{:02x}, isn't UTF-8; {}", at + 1,
                                   static_cast<unsigned char>(line_[at]), kReplaceErrors));
  }

  char peek() const { return at_ < line_.size() ? line_[at_] : '\0'; }
  bool take(char c) {
    if (peek() != c || at_ == line_.size()) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!line_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void skip_space() {
    while (at_ < line_.size() &&
           (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r' || line_[at_] == '\n')) {
      ++at_;
    }
  }
  // Fails at the end of the line.
  void require_more() const {
    if (at_ < line_.size()) return;
    if (depth_ == 0) fail("it ends before a value");
    throw RequestError(fmt::format(
        "isn't JSON: it ends within an {}; if objects span several lines, {} prints one a line",
        open_[depth_ - 1] == '{' ? "object" : "array", jq(".", options_.file)));
  }

  // Whether the value of the wanted member of the outermost object comes next.
  bool wanted() const { return depth_ == 1 && wanted_; }

  // Reads a value. Returns true if it opens an object or array that isn't empty; another value
  // comes then.
  bool value() {
    skip_space();
    require_more();
    const char c = peek();
    if (wanted()) is_other_ = c != '"';
    if (c == '{' || c == '[') {
      if (depth_ == kMaxJsonDepth) {
        throw RequestError(fmt::format("isn't JSON: is nested more than {} deep", kMaxJsonDepth));
      }
      open_[depth_++] = c;
      ++at_;
      skip_space();
      if (peek() == (c == '{' ? '}' : ']')) return false;
      if (c == '{') key();
      return true;
    }
    if (c == '"') {
      string(wanted() ? &text_.emplace() : nullptr, options_.replace_surrogates);
    } else if (is_digit(c) || c == '-') {
      if (!take("-Infinity")) number();
    } else if (!take("true") && !take("false") && !take("null") && !take("NaN") &&
               !take("Infinity")) {
      fail("needs a value");
    }
    return false;
  }

  // Closes the objects and arrays that end here. Returns true if another value comes.
  bool after_value() {
    while (depth_ > 0) {
      const bool object = open_[depth_ - 1] == '{';
      skip_space();
      require_more();
      if (take(object ? '}' : ']')) {
        --depth_;
        continue;
      }
      if (!take(',')) fail(object ? "needs a , or a }" : "needs a , or a ]");
      if (object) key();
      return true;
    }
    return false;
  }

  void key() {
    skip_space();
    require_more();
    if (peek() != '"') fail("needs a key in quotes");
    if (depth_ == 1) {
      std::string name;
      string(&name, true);
      wanted_ = name == options_.key;
    } else {
      string(nullptr, true);
    }
    skip_space();
    require_more();
    if (!take(':')) fail("needs a : after the key");
  }

  void end() {
    skip_space();
    if (at_ < line_.size()) fail("nothing may follow the object");
  }

  void digits() {
    if (!is_digit(peek())) fail("needs a digit");
    while (is_digit(peek())) ++at_;
  }
  void number() {
    take('-');
    if (!take('0')) digits();
    if (take('.')) digits();
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      digits();
    }
  }

  // Reads a string into `to`; skips it if `to` is nullptr.
  void string(std::string* to, bool replace) {
    ++at_;
    for (;;) {
      const std::size_t begin = at_;
      while (at_ < line_.size() && line_[at_] != '"' && line_[at_] != '\\' &&
             static_cast<unsigned char>(line_[at_]) >= 0x20) {
        ++at_;
      }
      if (to != nullptr) to->append(line_, begin, at_ - begin);
      if (at_ == line_.size()) fail("it ends within a string");
      if (take('"')) return;
      if (!take('\\')) {
        fail(fmt::format("the control character 0x{:02x} in a string, which needs an escape",
                         static_cast<unsigned char>(line_[at_])));
      }
      escape(to, replace);
    }
  }

  void escape(std::string* to, bool replace) {
    constexpr std::string_view letters = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
    if (take('u')) {
      const char32_t code = code_point(to != nullptr, replace);
      if (to != nullptr) append_utf8(*to, code);
      return;
    }
    const std::size_t which = at_ < line_.size() ? letters.find(line_[at_]) : std::string::npos;
    if (which == std::string_view::npos) fail("no such escape");
    ++at_;
    if (to != nullptr) *to += meant[which];
  }

  // Reads the digits after \u, and the second half of a surrogate pair if there is one.
  char32_t code_point(bool read, bool replace) {
    const std::size_t place = at_;
    const char32_t first = four_digits();
    if (first < 0xd800 || first > 0xdfff) return first;
    if (first < 0xdc00 && line_.substr(at_).starts_with("\\u")) {
      const std::size_t before = at_;
      at_ += 2;
      const char32_t second = four_digits();
      if (second >= 0xdc00 && second <= 0xdfff) {
        return 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
      }
      at_ = before;
    }
    if (read && !replace) {
      at_ = place - 2;
      fail(fmt::format("{} is an unpaired surrogate and so no character; {}", line_.substr(at_, 6),
                       kReplaceErrors));
    }
    return 0xfffd;
  }
  char32_t four_digits() {
    char32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("needs four hexadecimal digits after \\u");
      code = code << 4 | static_cast<char32_t>(digit);
    }
    return code;
  }

  std::string_view line_;
  const JsonDocumentOptions& options_;
  std::size_t at_ = 0;
  std::array<char, kMaxJsonDepth> open_ = {};  // '{' or '[' of each open object or array
  std::size_t depth_ = 0;
  bool wanted_ = false;    // the outermost object's last key is the wanted one
  bool is_other_ = false;  // the wanted member's value isn't a string
  std::optional<std::string> text_;
};

}  // namespace

std::string text_in_json(std::string_view line, const JsonDocumentOptions& options) {
  return Scanner(line, options).text();
}

}  // namespace trident

#include "base/files/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/printable.h"

namespace trident {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

// Walks the text and records how far the lexer has read. SAX events don't report this.
class TrackingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackingIterator(const char* position, const char** latest)
      : position_(position), latest_(latest) {}
  reference operator*() const { return *position_; }
  TrackingIterator& operator++() {
    *latest_ = ++position_;
    return *this;
  }
  bool operator==(const TrackingIterator& other) const { return position_ == other.position_; }
  bool operator!=(const TrackingIterator& other) const { return position_ != other.position_; }

 private:
  const char* position_;
  const char** latest_;
};

std::string place(std::string_view text, std::size_t offset, const std::string& name) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto newline = before.rfind('\n');
  const auto column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
  return fmt::format("{}:{}:{}", name, line, column);
}

// Builds the document from SAX events. Stops at the first violation.
class Builder : public nlohmann::json_sax<json> {
 public:
  Builder(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  const char* read = nullptr;  // the first byte that the lexer has not read yet
  json result;
  std::string error;

  bool null() override { return put(nullptr) != nullptr; }
  bool boolean(bool value) override { return put(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return put(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return put(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override {
    return put(value) != nullptr;
  }
  bool string(string_t& value) override { return put(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    key_ = std::move(key);
    if (!open_.back()->contains(key_)) return true;
    std::size_t quote = static_cast<std::size_t>(read - text_.data()) - 1;  // the closing quote
    do {
      quote = text_.rfind('"', quote - 1);
    } while (is_escaped(quote));
    error = fmt::format("{}: {}: this key occurs twice", place(text_, quote, name_),
                        printable(json_pointer_append(pointer(), key_)));
    return false;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& exception) override {
    error = fmt::format("{}: {}", place(text_, position > 0 ? position - 1 : 0, name_),
                        json_problem(exception.what()));
    return false;
  }

 private:
  bool is_escaped(std::size_t quote) const {
    std::size_t slashes = 0;
    while (slashes < quote && text_[quote - 1 - slashes] == '\\') ++slashes;
    return slashes % 2 == 1;
  }

  json* put(json value) {
    if (open_.empty()) return &(result = std::move(value));
    json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }

  bool open(json value) {
    if (open_.size() == kMaxJsonDepth) {
      error = fmt::format("{}: nested deeper than {}",
                          place(text_, static_cast<std::size_t>(read - text_.data()) - 1, name_),
                          kMaxJsonDepth);
      return false;
    }
    const bool in_object = !open_.empty() && open_.back()->is_object();
    if (!open_.empty()) {
      path_.push_back(in_object ? key_ : std::to_string(open_.back()->size()));
    }
    open_.push_back(put(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    if (!path_.empty()) path_.pop_back();
    return true;
  }

  std::string pointer() const {
    std::string result_pointer;
    for (const auto& component : path_) {
      result_pointer = json_pointer_append(result_pointer, component);
    }
    return result_pointer;
  }

  std::string_view text_;
  const std::string& name_;
  std::vector<json*> open_;  // the containers around the current place, outermost first
  std::vector<std::string> path_;
  std::string key_;
};

}  // namespace

std::string json_problem(std::string_view what) {
  // "[json.exception.…] parse error at line L, column C: what" -> "what"
  for (const char* prefix : {"] ", "column "}) {
    if (const auto at = what.find(prefix); at != std::string_view::npos) {
      what.remove_prefix(at + std::strlen(prefix));
    }
  }
  if (const auto at = what.find(": "); at < 12) {
    what.remove_prefix(at + 2);
  }
  return printable(what);
}

nlohmann::json parse_json(std::string_view text, const std::string& name, JsonComments comments) {
  Builder builder(text, name);
  builder.read = text.data();
  const TrackingIterator first(text.data(), &builder.read);
  const TrackingIterator last(text.data() + text.size(), &builder.read);
  const bool skips = comments == JsonComments::allowed;
  if (!json::sax_parse(first, last, &builder, json::input_format_t::json, true, skips)) {
    throw RequestError(builder.error);
  }
  return std::move(builder.result);
}

std::string json_pointer_append(std::string_view pointer, std::string_view key) {
  std::string result(pointer);
  result += '/';
  for (const char c : key) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

json json_or_null(std::string_view text) {
  json value = json::parse(text, nullptr, false);
  return value.is_discarded() ? json() : value;
}

ordered_json ordered_json_or_null(std::string_view text) {
  ordered_json value = ordered_json::parse(text, nullptr, false);
  return value.is_discarded() ? ordered_json() : value;
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string json_text(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace trident

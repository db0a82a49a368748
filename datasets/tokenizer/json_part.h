// An object in a tokenizer.json, read with an allow-list of its keys. Every error is a RequestError
// that begins with the object's place, "FILE: /model".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

class JsonPart {
 public:
  // `value` must be a JSON object and must outlive the JsonPart.
  JsonPart(const nlohmann::json& value, std::string place);

  const std::string& place() const { return place_; }
  [[noreturn]] void fail(std::string_view key, std::string_view problem) const;

  // Fails if the object has a key that isn't in `keys`, because its meaning isn't known.
  void allow(std::initializer_list<std::string_view> keys) const;
  // True if the key is missing or its value is null.
  bool lacks(std::string_view key) const;
  const nlohmann::json& operator[](std::string_view key) const;

  std::string string(std::string_view key) const;
  std::string string(std::string_view key, std::string_view otherwise) const;
  // A string that the tokenizer inserts into texts: at most 256 bytes, so that a text can't grow
  // without bounds.
  std::string insertion(std::string_view key) const;
  bool flag(std::string_view key, std::optional<bool> otherwise = {}) const;
  // An integer, at least 0 and below 2^31.
  std::int64_t number(std::string_view key, std::optional<std::int64_t> otherwise = {}) const;
  // The character of a string of one character.
  char32_t character(std::string_view key, std::optional<char32_t> otherwise = {}) const;
  JsonPart part(std::string_view key) const;
  // The objects of a list under the key.
  std::vector<JsonPart> parts(std::string_view key) const;

  // The index of the object's "type" among the names. The error for another type lists the names.
  std::size_t type_among(std::initializer_list<std::string_view> names) const;

 private:
  std::string place_of(std::string_view key) const;

  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace trident

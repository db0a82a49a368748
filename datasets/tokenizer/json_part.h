// A part of a tokenizer.json: an object whose keys are an allow-list. Every error is a RequestError
// that begins with the part's place, "FILE: /model".
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
  // `value` has to be an object, and has to outlive the part.
  JsonPart(const nlohmann::json& value, std::string place);

  const std::string& place() const { return place_; }
  [[noreturn]] void fail(std::string_view key, std::string_view problem) const;

  // Keys that aren't among these are errors: what they would mean isn't known.
  void allow(std::initializer_list<std::string_view> keys) const;
  // Not there, or null.
  bool lacks(std::string_view key) const;
  const nlohmann::json& operator[](std::string_view key) const;

  std::string string(std::string_view key) const;
  std::string string(std::string_view key, std::string_view otherwise) const;
  // What is put into texts: at most 256 bytes, so that a text can't grow without bounds.
  std::string insertion(std::string_view key) const;
  bool flag(std::string_view key, std::optional<bool> otherwise = {}) const;
  // At least 0 and below 2^31.
  std::int64_t number(std::string_view key, std::optional<std::int64_t> otherwise = {}) const;
  // A string of one character.
  char32_t character(std::string_view key, std::optional<char32_t> otherwise = {}) const;
  JsonPart part(std::string_view key) const;
  // The objects of a list.
  std::vector<JsonPart> parts(std::string_view key) const;

  // Index of the part's "type" among the names; another one is an error that lists them.
  std::size_t type_among(std::initializer_list<std::string_view> names) const;

 private:
  std::string place_of(std::string_view key) const;

  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace trident

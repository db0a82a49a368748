#include "datasets/tokenizer/json_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace trident {

using nlohmann::json;

JsonPart::JsonPart(const json& value, std::string place)
    : value_(&value), place_(std::move(place)) {
  if (!value.is_object()) throw RequestError(place_ + ": needs an object");
}

std::string JsonPart::place_of(std::string_view key) const {
  return place_.ends_with(' ') ? place_ + json_pointer_append("", key)
                               : json_pointer_append(place_, key);
}

void JsonPart::fail(std::string_view key, std::string_view problem) const {
  throw RequestError(fmt::format("{}: {}", place_of(key), problem));
}

void JsonPart::allow(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : value_->items()) {
    if (std::ranges::find(keys, key) == keys.end()) {
      fail(printable(key, 60), "isn't a key that this program knows here");
    }
  }
}

bool JsonPart::lacks(std::string_view key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null();
}

const json& JsonPart::operator[](std::string_view key) const {
  const auto found = value_->find(key);
  if (found == value_->end()) fail(key, "is missing");
  return *found;
}

std::string JsonPart::string(std::string_view key) const {
  const json& value = (*this)[key];
  if (!value.is_string()) fail(key, "needs a string");
  return value.get<std::string>();
}

std::string JsonPart::string(std::string_view key, std::string_view otherwise) const {
  return lacks(key) ? std::string(otherwise) : string(key);
}

std::string JsonPart::insertion(std::string_view key) const {
  std::string text = string(key);
  if (text.size() > 256) fail(key, "is longer than 256 bytes");
  return text;
}

bool JsonPart::flag(std::string_view key, std::optional<bool> otherwise) const {
  if (otherwise && lacks(key)) return *otherwise;
  const json& value = (*this)[key];
  if (!value.is_boolean()) fail(key, "needs true or false");
  return value.get<bool>();
}

std::int64_t JsonPart::number(std::string_view key, std::optional<std::int64_t> otherwise) const {
  if (otherwise && lacks(key)) return *otherwise;
  const json& value = (*this)[key];
  if (!value.is_number_integer() || value < 0 || value >= (std::int64_t{1} << 31)) {
    fail(key, "needs a whole number from 0 to 2^31 - 1");
  }
  return value.get<std::int64_t>();
}

char32_t JsonPart::character(std::string_view key, std::optional<char32_t> otherwise) const {
  if (otherwise && lacks(key)) return *otherwise;
  const std::string text = string(key);
  if (text.empty() || first_code_point(text).bytes != text.size()) {
    fail(key, "needs one character");
  }
  return first_code_point(text).code;
}

JsonPart JsonPart::part(std::string_view key) const {
  return {(*this)[key], place_of(key)};
}

std::vector<JsonPart> JsonPart::parts(std::string_view key) const {
  const json& list = (*this)[key];
  if (!list.is_array()) fail(key, "needs a list");
  std::vector<JsonPart> result;
  for (std::size_t i = 0; i < list.size(); ++i) {
    result.emplace_back(list[i], fmt::format("{}/{}", place_of(key), i));
  }
  return result;
}

std::size_t JsonPart::type_among(std::initializer_list<std::string_view> names) const {
  const std::string type = string("type");
  const auto* found = std::ranges::find(names, type);
  if (found == names.end()) {
    fail("type", fmt::format("\"{}\" isn't supported; this program knows {}", printable(type, 60),
                             fmt::join(names, ", ")));
  }
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace trident

// A vocabulary: tokens and their ids. Concurrent readers are safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trident {

// Allows lookups of a string_view in a map of strings.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};

template <class Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

class Vocabulary {
 public:
  // Adds a token; a known token gets the new id. Returns false if another token has the id.
  bool add(const std::string& token, std::int32_t id);

  std::optional<std::int32_t> find(std::string_view token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  // Returns nullptr if no token has the id.
  const std::string* token(std::int32_t id) const {
    const auto found = tokens_.find(id);
    return found == tokens_.end() ? nullptr : &found->second;
  }
  std::size_t size() const { return ids_.size(); }      // tokens
  std::int32_t largest_id() const { return largest_; }  // -1 if it is empty
  const StringMap<std::int32_t>& ids() const { return ids_; }

 private:
  StringMap<std::int32_t> ids_;
  std::unordered_map<std::int32_t, std::string> tokens_;
  std::int32_t largest_ = -1;
};

}  // namespace trident

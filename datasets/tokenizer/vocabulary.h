// Tokens and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trident {

// Lets a map of strings be asked with a string_view.
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
  // A token that is there already gets the new id. False where the id is another token's.
  bool add(const std::string& token, std::int32_t id);

  std::optional<std::int32_t> find(std::string_view token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  // nullptr where no token has it.
  const std::string* token(std::int32_t id) const {
    const auto found = tokens_.find(id);
    return found == tokens_.end() ? nullptr : &found->second;
  }
  std::size_t size() const { return ids_.size(); }      // tokens
  std::int32_t largest_id() const { return largest_; }  // -1 where there is none
  const StringMap<std::int32_t>& ids() const { return ids_; }

 private:
  StringMap<std::int32_t> ids_;
  std::unordered_map<std::int32_t, std::string> tokens_;
  std::int32_t largest_ = -1;
};

}  // namespace trident

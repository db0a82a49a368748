// What is wrong with a config, collected while it is read and checked.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// Everything wrong with a config, and which fields can't be relied on by later checks. A check runs
// only where the fields it compares are sound, so that every line is a problem of its own.
class ConfigProblems {
 public:
  // Reports a problem at `path` ("/model/hidden_size") and takes `path` for unsound. `what`: what
  // was got, the rule; the nearest choice that fits.
  void add(std::string_view path, const std::string& what);
  // `path` has no usable value because of a problem reported elsewhere.
  void spoil(std::string_view path) { unsound_.emplace(path); }
  bool sound(std::string_view path) const { return !unsound_.contains(path); }
  bool sound(std::initializer_list<std::string_view> paths) const;
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
  std::set<std::string, std::less<>> unsound_;
};

// "1, 2 or 4".
std::string list_or(const std::vector<std::string>& names);
// "1, 2 and 4".
std::string list_and(const std::vector<std::string>& names);
// The divisors of n that are nearest to `value`, at most six, as a list.
std::string divisors_near(std::int64_t n, std::int64_t value);
// The positive multiples of `unit` around `value`: "12 or 16".
std::string multiples_near(std::int64_t unit, std::int64_t value);

}  // namespace trident

// The problems of a config, collected while it is read and checked.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// All problems of a config, and the fields whose values later checks must not use ("unsound"). A
// check runs only if the fields that it compares are sound, so that every line reports a separate
// problem. Not thread-safe.
class ConfigProblems {
 public:
  // Adds a problem at `path` ("/model/hidden_size") and marks `path` as unsound. `what` has the
  // value, the rule, and after a semicolon the nearest valid choice.
  void add(std::string_view path, const std::string& what);
  // Marks `path` as unsound because of a problem that another line reports.
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
// The divisors of n nearest to `value`, at most six, as a list.
std::string divisors_near(std::int64_t n, std::int64_t value);
// The positive multiples of `unit` around `value`: "12 or 16".
std::string multiples_near(std::int64_t unit, std::int64_t value);

}  // namespace trident

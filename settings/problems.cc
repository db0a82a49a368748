// Collects and words problems.
#include "settings/problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/printable.h"

namespace trident {

// Limit in bytes. Names in a problem may be long and contain line ends, which printable() escapes.
constexpr std::size_t kMaxLine = 2000;

void ConfigProblems::add(std::string_view path, const std::string& what) {
  lines_.push_back(printable(fmt::format("config: {}: {}", path, what), kMaxLine));
  spoil(path);
}

bool ConfigProblems::sound(std::initializer_list<std::string_view> paths) const {
  return std::all_of(paths.begin(), paths.end(), [&](auto path) { return sound(path); });
}

namespace {

std::string listed(const std::vector<std::string>& names, const char* before_last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? before_last : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace

std::string list_or(const std::vector<std::string>& names) {
  return listed(names, " or ");
}

std::string list_and(const std::vector<std::string>& names) {
  return listed(names, " and ");
}

std::string divisors_near(std::int64_t n, std::int64_t value) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d <= n / d; ++d) {
    if (n % d != 0) continue;
    divisors.push_back(d);
    if (d != n / d) divisors.push_back(n / d);
  }
  const auto away = [&](std::int64_t d) { return d > value ? d - value : value - d; };
  std::sort(divisors.begin(), divisors.end(), [&](auto a, auto b) { return away(a) < away(b); });
  divisors.resize(std::min<std::size_t>(divisors.size(), 6));
  std::sort(divisors.begin(), divisors.end());
  std::vector<std::string> names;
  for (const auto d : divisors) names.push_back(std::to_string(d));
  return list_or(names);
}

std::string multiples_near(std::int64_t unit, std::int64_t value) {
  const std::int64_t below = value / unit * unit;
  if (below == 0) return std::to_string(unit);
  return fmt::format("{} or {}", below, below + unit);
}

}  // namespace trident

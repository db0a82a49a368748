// The combinations of several choices that a test tries. They contain every pair of two choices'
// values at least once; `scripts/test --full` (environment variable TRIDENT_TEST_FULL) tries all
// combinations.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <set>
#include <vector>

namespace trident::testing {

inline bool tests_are_full() {
  return std::getenv("TRIDENT_TEST_FULL") != nullptr;
}

using Combination = std::vector<std::size_t>;  // the value of each choice

inline std::vector<Combination> full_product(const std::vector<std::size_t>& sizes) {
  std::vector<Combination> all{{}};
  for (const std::size_t size : sizes) {
    std::vector<Combination> longer;
    for (const Combination& c : all) {
      for (std::size_t value = 0; value < size; ++value) {
        longer.push_back(c);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// A greedy cover: each step takes the combination with the most pairs that are not covered yet, and
// the first of equal ones. Choice i has sizes[i] values.
inline std::vector<Combination> pairwise(const std::vector<std::size_t>& sizes) {
  const auto pairs = [](const Combination& c) {
    std::vector<std::vector<std::size_t>> list;
    for (std::size_t i = 0; i < c.size(); ++i) {
      for (std::size_t j = i + 1; j < c.size(); ++j) list.push_back({i, c[i], j, c[j]});
    }
    return list;
  };
  const std::vector<Combination> all = full_product(sizes);
  std::set<std::vector<std::size_t>> open;
  for (const Combination& c : all) {
    for (auto& pair : pairs(c)) open.insert(pair);
  }
  std::vector<Combination> chosen;
  while (!open.empty()) {
    const Combination* best = nullptr;
    std::size_t most = 0;
    for (const Combination& c : all) {
      std::size_t count = 0;
      for (const auto& pair : pairs(c)) count += open.count(pair);
      if (count > most) {
        most = count;
        best = &c;
      }
    }
    for (const auto& pair : pairs(*best)) open.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

inline std::vector<Combination> combinations(const std::vector<std::size_t>& sizes) {
  return tests_are_full() || sizes.size() < 2 ? full_product(sizes) : pairwise(sizes);
}

}  // namespace trident::testing

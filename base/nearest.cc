#include "base/nearest.h"

#include <algorithm>
#include <numeric>

namespace trident {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, 64);  // longer than any key; limits the time for a hostile name
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

bool is_near(std::string_view name, std::string_view candidate) {
  return 3 * edit_distance(name, candidate) <= std::max(name.size(), candidate.size()) + 1;
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  const auto best =
      std::min_element(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
        return edit_distance(name, a) < edit_distance(name, b);
      });
  return best == candidates.end() ? "" : *best;
}

}  // namespace trident

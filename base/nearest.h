// Finds the known name that the user of an unknown name probably meant.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// The candidate nearest to `name` by edit distance, however far away it is (see is_near()). Returns
// "" if there are no candidates.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);
// Whether the edit distance is at most about a third of the longer name.
bool is_near(std::string_view name, std::string_view candidate);
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace trident

// The name that was probably meant where an unknown one was given.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// The name nearest to `name` by edit distance, however far that is (is_near); "" of no candidates.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);
// No more than a third of the name is another.
bool is_near(std::string_view name, std::string_view candidate);
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace trident

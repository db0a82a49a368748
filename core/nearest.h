// The name that was probably meant where an unknown one was given.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// The name nearest to `name` by edit distance; "" of no candidates.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace trident

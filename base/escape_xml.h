// Text for XML and HTML: between tags and in quoted attributes.
#pragma once

#include <string>

namespace trident {

// Control characters, which XML 1.0 can't hold, become spaces.
std::string escape_xml(const std::string& text);

}  // namespace trident

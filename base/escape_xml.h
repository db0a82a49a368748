// Escapes text for XML and HTML: for content between tags and for quoted attributes.
#pragma once

#include <string>

namespace trident {

// Control characters, which XML 1.0 can't hold, become spaces.
std::string escape_xml(const std::string& text);

}  // namespace trident

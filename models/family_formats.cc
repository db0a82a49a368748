#include "models/family_formats.h"

namespace trident {

std::string FamilyFormats::kept_config(std::string_view, bool) const {
  return "{}";
}

std::vector<std::string> FamilyFormats::unread_keys(std::string_view) const {
  return {};
}

bool FamilyFormats::passes_over(std::string_view, std::int64_t) const {
  return false;
}

std::vector<std::string> FamilyFormats::buffers(std::int64_t) const {
  return {};
}

}  // namespace trident

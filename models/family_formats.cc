#include "models/family_formats.h"

namespace trident {

std::string FamilyFormats::kept_config(std::string_view, bool) const {
  return "{}";
}

std::vector<std::string> FamilyFormats::unread_keys(std::string_view) const {
  return {};
}

std::int64_t FamilyFormats::further_layers(std::string_view) const {
  return 0;
}

std::vector<std::string> FamilyFormats::buffers(std::int64_t) const {
  return {};
}

}  // namespace trident

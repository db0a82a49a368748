#include "models/family_files.h"

namespace trident {

std::string FamilyFiles::kept_config(std::string_view, bool) const {
  return "{}";
}

std::vector<std::string> FamilyFiles::unread_keys(std::string_view) const {
  return {};
}

std::vector<std::string> FamilyFiles::buffers(std::int64_t) const {
  return {};
}

}  // namespace trident

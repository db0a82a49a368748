#include "tests/support/source_dir.h"

#include <cstdlib>

namespace trident {

std::string source_dir() {
  const char* const elsewhere = std::getenv("TRIDENT_SOURCE_DIR");
  return elsewhere != nullptr ? elsewhere : TRIDENT_SOURCE_DIR;
}

}  // namespace trident

// Where the tests' files are: the checkout they were built in, or TRIDENT_SOURCE_DIR for tests that
// have travelled (scripts/bundle).
#pragma once

#include <cstdlib>
#include <string>

namespace trident {

inline std::string source_dir() {
  const char* const elsewhere = std::getenv("TRIDENT_SOURCE_DIR");
  return elsewhere != nullptr ? elsewhere : TRIDENT_SOURCE_DIR;
}

}  // namespace trident

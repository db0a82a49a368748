// Where the tests' files are: the checkout they were built in, or TRIDENT_SOURCE_DIR for tests that
// have travelled (scripts/bundle).
#pragma once

#include <string>

namespace trident {

std::string source_dir();

}  // namespace trident

// The folder of the tests' files: the checkout in which the tests were built, or TRIDENT_SOURCE_DIR
// for tests that were moved to another machine (scripts/bundle).
#pragma once

#include <string>

namespace trident {

std::string source_dir();

}  // namespace trident

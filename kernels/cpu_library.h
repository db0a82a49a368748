// What the CPU's matrix products depend on beside this program.
#pragma once

#include <string>

namespace trident {

// The library and what it goes by: "oneDNN 2.6.3 (…), instructions 0x1f7, fpmath mode 0".
std::string cpu_product_library();

}  // namespace trident

// What the CPU's matrix products depend on beside this program.
#pragma once

#include <string>

namespace trident {

// The library and what it goes by: "oneDNN 2.6.3 (…), instructions 0x1f7, fpmath mode 0".
std::string cpu_product_library();

// Which of its instructions multiply bf16. Those of whole tiles (AMX) are faster than fp32's
// wherever they are; those of vectors (AVX512-BF16) are twice as fast on some processors and half
// as fast on others.
enum class CpuBf16 { none, vectors, tiles };
CpuBf16 cpu_bf16();

}  // namespace trident

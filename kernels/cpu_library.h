// The library behind the CPU's matrix products (oneDNN): its version, and its bf16 instructions.
// Any thread may call these functions.
#pragma once

#include <string>

namespace trident {

// The library's version and the settings that affect its results: "oneDNN 2.6.3 (…), instructions
// 0x1f7, fpmath mode 0".
std::string cpu_product_library();

// The instructions that multiply bf16. Tile instructions (AMX) are faster than fp32 on every
// processor that has them. Vector instructions (AVX512-BF16) are twice as fast as fp32 on some
// processors and half as fast on others.
enum class CpuBf16 { none, vectors, tiles };
CpuBf16 cpu_bf16();

}  // namespace trident

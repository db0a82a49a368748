// Tests which instructions the CPU kernels choose, and that oneDNN's limit lowers the choice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "kernels/backend.h"
#include "kernels/cpu/product_cache.h"
#include "kernels/cpu/state.h"

namespace trident {
namespace {

using cpu::simd::Isa;

// CTest runs this program without a limit, with AVX2 and with SSE41 as the limit.
TEST(Instructions, AreTheProcessorsBestWithinTheLimit) {
  const char* const variable = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string limit = variable ? variable : "";
  Isa want = cpu::simd::best_isa();
  if (limit == "AVX2") want = std::min(want, Isa::avx2);
  if (limit == "SSE41") want = Isa::sse2;
  EXPECT_EQ(cpu::default_isa(), want);
  EXPECT_EQ(cpu::State().table->isa, want);
  EXPECT_TRUE(want == Isa::avx512 || !cpu::product_instructions().bf16);
  EXPECT_EQ(cpu_backend().instructions(), std::string(cpu::simd::name_of(want)) +
                                              (cpu::product_instructions().bf16 ? " bf16" : ""));
}

}  // namespace
}  // namespace trident

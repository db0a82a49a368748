// Tests which instructions the CPU kernels choose, and that oneDNN's limit lowers the choice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/product_cache.h"
#include "kernels/cpu/state.h"

namespace trident {
namespace {

using cpu::simd::Isa;

// CTest runs this program without a limit, and with AVX512_CORE_BF16, AVX2 and SSE41 as the limit.
TEST(Instructions, AreTheProcessorsBestWithinTheLimit) {
  const char* const variable = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string limit = variable ? variable : "";
  Isa want = cpu::simd::best_isa();
  if (limit == "AVX2") want = std::min(want, Isa::avx2);
  if (limit == "SSE41") want = Isa::sse2;
  EXPECT_EQ(cpu::default_isa(), want);
  EXPECT_EQ(cpu::State().table->isa, want);
  // A build without the other loops has oneDNN's products all the same.
  const bool only_sse2 = cpu::simd::best_isa() == Isa::sse2;
  EXPECT_TRUE(want == Isa::avx512 || only_sse2 || !cpu::product_instructions().bf16);
  EXPECT_EQ(cpu_backend().instructions(), std::string(cpu::simd::name_of(want)) +
                                              (cpu::product_instructions().bf16 ? " bf16" : ""));
}

TEST(Instructions, NativeBf16LoopsAreThoseOfTilesBeforeThoseOfVectors) {
  const char* const variable = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string limit = variable ? variable : "";
  const cpu::simd::Bf16Loops* want = nullptr;
  if (cpu::simd::has_avx512_bf16()) want = &cpu::simd::avx512_bf16::bf16_loops;
  if (cpu::simd::allows_amx() && limit.empty()) want = &cpu::simd::amx::bf16_loops;
  if (limit == "AVX2" || limit == "SSE41") want = nullptr;
  EXPECT_EQ(cpu::State().bf16_loops, want);
}

// Sums of small integers are exact, so both ways give the same bits. All sizes of blocks: 1 to 7
// times 16 columns, 1 to 3 times 16 rows.
TEST(Instructions, NativeBf16ProductsAddAllTerms) {
  std::vector<const cpu::simd::Bf16Loops*> ways;
  if (cpu::simd::has_avx512_bf16()) ways.push_back(&cpu::simd::avx512_bf16::bf16_loops);
  if (cpu::simd::allows_amx()) ways.push_back(&cpu::simd::amx::bf16_loops);
  if (ways.empty()) GTEST_SKIP() << "this processor has no native bf16 products";
  const auto number = [](std::int64_t i, std::int64_t j) {
    return static_cast<float>((i * 7 + j * 13) % 9 - 4);
  };
  for (const auto* const way : ways) {
    for (std::int64_t m = 16; m <= 48; m += 16) {
      for (std::int64_t n = 16; n <= 112; n += 16) {
        for (const std::int64_t k : {32, 96}) {
          std::vector<BFloat16> a(static_cast<std::size_t>(m * k)),
              b(static_cast<std::size_t>(k * n));
          for (std::int64_t i = 0; i < m * k; ++i)
            a[static_cast<std::size_t>(i)] = BFloat16(number(i / k, i % k));
          for (std::int64_t i = 0; i < k * n; ++i)
            b[static_cast<std::size_t>(i)] = BFloat16(number(i % n, i / n));
          std::vector<std::uint32_t> pairs(static_cast<std::size_t>(k / 2 * n));
          way->pack_right({b.data(), n}, k, n, pairs.data());
          std::vector<float> c(static_cast<std::size_t>(m * n), 1e6f);
          for (const bool add : {false, true})
            way->products(a.data(), k, pairs.data(), c.data(), m, n, k, add);
          for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < n; ++j) {
              float want = 0;
              for (std::int64_t t = 0; t < k; ++t) want += 2 * number(i, t) * number(j, t);
              ASSERT_EQ(c[static_cast<std::size_t>(i * n + j)], want)
                  << m << " " << n << " " << k << " at " << i << ", " << j;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace trident

// Tests types, tensors, memory accounting and random numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "core/context.h"
#include "core/rng.h"
#include "support/random_normal.h"

namespace trident {
namespace {

// Rounds by the definition, in exact arithmetic on doubles: to the nearest value, ties to even.
double nearest_16(double value, int mantissa_bits, int min_exponent, double largest) {
  if (value == 0 || std::isinf(value)) return value;
  const int exponent = std::max(std::ilogb(value), min_exponent);
  const double unit = std::ldexp(1.0, exponent - mantissa_bits);
  const double rounded = std::nearbyint(value / unit) * unit;  // the default mode: ties to even
  return std::abs(rounded) > largest ? std::copysign(INFINITY, value) : rounded;
}

template <class T>
T from_bits(std::uint32_t bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

// Checks every 16-bit value, the midpoints between neighbours, and the floats next to the
// midpoints.
template <class T>
void check_conversions(int mantissa_bits, int min_exponent, double largest) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<float>(from_bits<T>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(T(value))));
      continue;
    }
    ASSERT_EQ(T(value).bits, bits);
    const auto next = static_cast<float>(from_bits<T>(bits + 1));
    if ((bits & 0x7fffu) == 0x7fffu || !std::isfinite(next) || std::isinf(value)) continue;
    const float middle = value / 2 + next / 2;
    for (const float x : {middle, std::nextafter(middle, value), std::nextafter(middle, next)}) {
      ASSERT_EQ(static_cast<float>(T(x)), nearest_16(x, mantissa_bits, min_exponent, largest)) << x;
    }
  }
}

TEST(DTypes, BFloat16RoundsToNearestEvenEverywhere) {
  check_conversions<BFloat16>(7, -126, 3.3895313892515355e38);
  EXPECT_EQ(BFloat16(3.4e38f).bits, 0x7f80);  // overflow
}

TEST(DTypes, Float16RoundsToNearestEvenEverywhere) {
  check_conversions<Float16>(10, -14, 65504);
  EXPECT_EQ(Float16(65519.99f).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(Float16(2.9e-8f).bits, 0x0000);
  EXPECT_EQ(Float16(3.1e-8f).bits, 0x0001);
}

TEST(DTypes, NamesAndSizesAreTheConfigs) {
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(name_of(DType::f32), "fp32");
  EXPECT_EQ(size_of(DType::f16), 2u);
  EXPECT_EQ(size_of(DType::i64), 8u);
  EXPECT_TRUE(is_floating(DType::f16));
  EXPECT_FALSE(is_floating(DType::u8));
}

using Words = std::array<std::uint32_t, 4>;

TEST(Random, PhiloxMatchesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t f = 0xffffffff;
  EXPECT_EQ(philox({f, f, f, f}, {f, f}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, NormalsHaveTheMomentsOfANormalDistribution) {
  double sum = 0, squares = 0, fourth = 0, neighbours = 0, before = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double x = random_normal(7, static_cast<std::uint64_t>(i));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    neighbours += x * before;
    before = x;
  }
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.015);
  EXPECT_NEAR(fourth / n, 3, 0.15);
  EXPECT_NEAR(neighbours / n, 0, 0.01);
}

TEST(Random, KeysDifferByNameAndSeed) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (const char* name : {"wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", ""}) {
      keys.insert(random_key(seed, name));
    }
  }
  EXPECT_EQ(keys.size(), 200u);
  EXPECT_NE(random_normal(1, std::uint64_t{1} << 40), random_normal(1, 0));
}

class ContextTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device = make_cpu_device();
  Context context{*device, 2};
};

TEST_F(ContextTest, TensorViewsShareMemoryAndKeepWithinIt) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const Tensor x = context.from_host<float>({3, 4}, values, Category::activation);
  EXPECT_EQ(context.to_host<float>(x.rows(1, 2)),
            std::vector<float>(values.begin() + 4, values.end()));
  EXPECT_EQ(x.rows(1, 2).shape(), (Shape{2, 4}));
  const Tensor part = x.flat(5, 2);
  context.copy_from_host(part, std::as_bytes(std::span(values).subspan(0, 2)));
  EXPECT_EQ(context.to_host<float>(x)[5], 0.0f);
  EXPECT_EQ(x.view({2, 2, 3}).dim(-1), 3);
  EXPECT_EQ((Shape{4, 768}).to_string(), "[4, 768]");
  EXPECT_EQ(Shape{}.numel(), 1);

  EXPECT_THROW(x.view({5}), Error);
  EXPECT_THROW(x.rows(2, 2), Error);
  EXPECT_THROW(x.flat(-1, 2), Error);
  EXPECT_THROW((Shape{1, -2}), Error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1}), Error);
  EXPECT_THROW(context.copy_from_host(x, std::as_bytes(std::span(values).subspan(1))), Error);
}

TEST_F(ContextTest, ReadingATensorAsAnotherTypeIsAnError) {
  const Tensor x = context.empty({2}, DType::f32, Category::activation);
  EXPECT_THROW(data<BFloat16>(Access{}, x), Error);
  EXPECT_NE(data<float>(Access{}, x), nullptr);
  EXPECT_EQ(data<float>(Access{}, Tensor()), nullptr);
}

TEST_F(ContextTest, LedgerCountsBytesByCategoryAndTheirPeaks) {
  const auto at = [](Category c) { return static_cast<std::size_t>(c); };
  Tensor a = context.empty({100}, DType::f32, Category::parameter);
  {
    const Tensor b = context.empty({50}, DType::bf16, Category::activation);
    const Tensor view = b.flat(3, 4);  // allocates nothing
    EXPECT_EQ(context.ledger().figures().total, 500);
  }
  Ledger::Figures figures = context.ledger().figures();
  EXPECT_EQ(figures.current[at(Category::parameter)], 400);
  EXPECT_EQ(figures.current[at(Category::activation)], 0);
  EXPECT_EQ(figures.peak[at(Category::activation)], 100);
  EXPECT_EQ(figures.total, 400);
  EXPECT_EQ(figures.peak_total, 500);
  EXPECT_EQ(figures.taken, 2);
  context.ledger().reset_peaks();
  EXPECT_EQ(context.ledger().figures().peak_total, 400);
}

TEST_F(ContextTest, AllocatorGivesBlocksOutAgain) {
  for (int i = 0; i < 5; ++i) {
    const Tensor a = context.empty({1000}, DType::f32, Category::activation);
    const Tensor b = context.empty({1000}, DType::f32, Category::activation);
    EXPECT_NE(data<float>(Access{}, a), data<float>(Access{}, b));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data<float>(Access{}, a)) % 64, 0u);
  }
  EXPECT_EQ(context.allocator().figures().device_allocations, 1);
  EXPECT_GE(context.allocator().figures().reserved_bytes, 8000);
  EXPECT_LE(context.allocator().figures().reserved_bytes, 2 << 20);  // one chunk
}

TEST_F(ContextTest, ParallelForCoversTheRangeOnceAndNotBelowTheGrain) {
  for (const std::int64_t n : {0, 1, 3, 17, 1000}) {
    std::vector<int> seen(static_cast<std::size_t>(n), 0);
    context.team().parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(n), 1));
  }
  int calls = 0;
  context.team().parallel_for(7, 4, [&](std::int64_t, std::int64_t) { ++calls; });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace trident

// Compares the exact sum with integer arithmetic, and checks that order and grouping don't change
// it.
#include "core/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace trident {
namespace {

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double v : values) sum.add(v);
  return sum.value();
}

// Values of both signs over 120 binary orders of magnitude.
std::vector<double> wide_values(int n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-60, 60);
  std::vector<double> values;
  for (int i = 0; i < n; ++i) values.push_back(std::ldexp(mantissa(random), exponent(random)));
  return values;
}

TEST(ExactSum, AnyOrderAndGroupingGiveTheSameBits) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    std::vector<double> values = wide_values(5000, seed);
    const double expected = sum_of(values);
    std::mt19937 random(seed);
    for (int trial = 0; trial < 10; ++trial) {
      std::shuffle(values.begin(), values.end(), random);
      // The values are distributed over several ranks, whose states are added element by element.
      const std::size_t ranks = 1 + random() % 9;
      std::vector<ExactSum> parts(ranks);
      for (const double v : values) parts[random() % ranks].add(v);
      std::array<std::int64_t, ExactSum::limbs + 1> total{};
      for (const ExactSum& part : parts) {
        const auto state = part.state();
        for (std::size_t i = 0; i < total.size(); ++i) total[i] += state[i];
      }
      const double got = ExactSum::from_state(total).value();
      EXPECT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(expected))
          << got << " " << expected;
    }
  }
}

TEST(ExactSum, IsWithinAnUlpOfTheTrueSum) {
  // Multiples of 2^-40 below 2^20: __int128 holds their sum exactly.
  std::mt19937_64 random(7);
  ExactSum sum;
  __int128 truth = 0;
  for (int i = 0; i < 100'000; ++i) {
    const auto units =
        static_cast<std::int64_t>(random() % (std::uint64_t{1} << 53)) - (std::int64_t{1} << 52);
    truth += units;
    sum.add(std::ldexp(static_cast<double>(units), -40));
  }
  const auto expected = static_cast<double>(std::ldexp(static_cast<long double>(truth), -40));
  EXPECT_NEAR(sum.value(), expected,
              std::nextafter(std::abs(expected), INFINITY) - std::abs(expected));
}

TEST(ExactSum, CancellationLosesNothingAndExtremesFit) {
  EXPECT_EQ(sum_of({}), 0.0);
  EXPECT_EQ(sum_of({1e300, 1.0, -1e300}), 1.0);
  EXPECT_EQ(sum_of({1e300, 1e-300, -1e300, -1e-300, 3.5}), 3.5);
  const double tiny = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(sum_of({tiny, 1.0, tiny, -1.0}), 2 * tiny);
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(sum_of({most, most, -most}), most);
  EXPECT_EQ(sum_of({-most}), -most);
}

TEST(ExactSum, ANonFiniteValueMakesItNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {infinity, -infinity, std::nan("")}) {
    EXPECT_TRUE(std::isnan(sum_of({1.0, bad, 2.0})));
    ExactSum a, b;
    a.add(bad);
    b.add(1.0);
    auto total = a.state();
    const auto other = b.state();
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += other[i];
    EXPECT_TRUE(std::isnan(ExactSum::from_state(total).value()));
  }
  EXPECT_TRUE(std::isnan(sum_of({infinity, -infinity})));
}

}  // namespace
}  // namespace trident

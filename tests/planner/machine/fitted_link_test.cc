#include "planner/machine/fitted_link.h"

#include <gtest/gtest.h>

namespace trident {
namespace {

constexpr double megabyte = 1 << 20;

// Four ranks: six hops, and 1.5 times the message over each link.
TEST(FittedLink, FindsTheLinkThatTimesWereMadeOf) {
  const auto seconds = [](double bytes) { return 6 * 2e-6 + 1.5 * bytes / 4e9; };
  std::vector<TimedAllReduce> times{{4, seconds(0)}};
  for (const double bytes : {megabyte / 16, megabyte, 8 * megabyte}) {
    times.push_back({bytes, seconds(bytes)});
  }
  const Machine::Link link = fitted_link(times, 4);
  EXPECT_NEAR(link.latency, 2e-6, 1e-12);
  EXPECT_NEAR(link.bandwidth, 4e9, 1);
}

// On a busy machine a small message may take as long as a large one, or so long that no other is
// measured.
TEST(FittedLink, ABusyMachineStillHasABandwidth) {
  const Machine::Link only = fitted_link({{4096, 0.3}}, 2);
  EXPECT_DOUBLE_EQ(only.bandwidth, 4096 / 0.3);
  EXPECT_DOUBLE_EQ(only.latency, 0.15);
  const Machine::Link hidden = fitted_link({{4096, 0.3}, {65536, 0.2}, {megabyte, 0.25}}, 2);
  EXPECT_DOUBLE_EQ(hidden.bandwidth, megabyte / 0.25);
  // Nor does a difference of a thousandth show a bandwidth.
  const Machine::Link noise =
      fitted_link({{4096, 10e-6}, {65536, 10.01e-6}, {megabyte, 9e-6}, {8 * megabyte, 2e-3}}, 2);
  EXPECT_NEAR(noise.bandwidth, 8 * megabyte / 1.99e-3, 1);
  // A size that took longer than the smallest counts alone.
  const Machine::Link one = fitted_link({{4096, 0.3}, {65536, 0.2}, {megabyte, 0.4}}, 2);
  EXPECT_NEAR(one.bandwidth, megabyte / 0.1, 1e-3);
}

}  // namespace
}  // namespace trident

#include "datasets/batch_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace trident {
namespace {

using ::testing::ElementsAre;

// The batch size after `consumed` samples, computed as in Megatron-LM's
// RampupBatchsizeNumMicroBatchesCalculator, in integer arithmetic.
std::int64_t counted(std::int64_t global, const BatchRamp& ramp, std::int64_t consumed) {
  if (consumed >= ramp.samples) return global;
  const std::int64_t increments = (global - ramp.start) / ramp.increment;
  return ramp.start + consumed * increments / ramp.samples * ramp.increment;
}

TEST(BatchSizes, AreThoseOfMegatronsRampWhereverARunBegins) {
  struct Case {
    std::int64_t global;
    BatchRamp ramp;
  };
  const std::vector<Case> cases{{16, {4, 4, 100}}, {16, {4, 4, 96}},      {1536, {16, 16, 5'859}},
                                {12, {2, 10, 7}},  {9, {1, 1, 3}},  // several steps within a batch
                                {100, {99, 1, 1}}, {8, {2, 2, 1'000'000}}};
  for (const auto& [global, ramp] : cases) {
    SCOPED_TRACE(global);
    for (const std::int64_t first : {0, 7}) {
      for (const std::int64_t begun : {std::int64_t{0}, std::int64_t{5}, ramp.samples / 2,
                                       ramp.samples - 1, ramp.samples, ramp.samples + 3}) {
        const BatchSizes sizes(global, ramp, first, begun);
        std::int64_t consumed = begun, grown = 0;
        std::vector<std::int64_t> seen;
        for (std::int64_t k = first; grown < 3 && k < first + 2000; ++k) {
          ASSERT_EQ(sizes.first_sample(k), consumed) << k;
          const std::int64_t size = counted(global, ramp, consumed);
          ASSERT_EQ(sizes.of(k), size) << k;
          if (seen.empty() || seen.back() != size) seen.push_back(size);
          // The samples before k, or up to one batch more, make k complete iterations.
          ASSERT_EQ(sizes.iterations(consumed - begun), k - first);
          ASSERT_EQ(sizes.iterations(consumed - begun + size - 1), k - first);
          consumed += size;
          grown += size == global;
        }
        if (grown > 0) {
          EXPECT_EQ(sizes.sizes(), seen);
        }
        EXPECT_EQ(sizes.largest(), global);
      }
    }
  }
}

TEST(BatchSizes, WithoutARampAreAllAlike) {
  const BatchSizes from_zero = 6, later(6, {}, 10, 100);
  EXPECT_EQ(from_zero.first_sample(7), 42);
  EXPECT_EQ(later.first_sample(12), 112);
  EXPECT_EQ(later.iterations(17), 2);
  EXPECT_THAT(later.sizes(), ElementsAre(6));
}

TEST(BatchSizes, ManySamplesLeave64Bits) {
  const BatchSizes sizes(4096, {16, 16, 1'000'000'000'000'000}, 0, 999'999'999'999'990);
  EXPECT_EQ(sizes.of(0), 4096 - 16);
  EXPECT_EQ(sizes.of(1), 4096);
}

TEST(BatchSizes, IncrementsLeadToTheLastBatch) {
  EXPECT_THROW(BatchSizes(16, {4, 5, 100}, 0, 0), Error);
  EXPECT_THROW(BatchSizes(16, {16, 4, 100}, 0, 0), Error);
}

}  // namespace
}  // namespace trident

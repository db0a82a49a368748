#include "run/measurement/measured_kernels.h"

#include <gmock/gmock.h>

#include "planner/machine/operation_times.h"
#include "run/measurement/measured_skew.h"

namespace trident {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::Optional;

TracedOperation product(std::int64_t m, double seconds) {
  return {.name = "gemm",
          .shape = {m, 8, 4},
          .flops = 64.0 * static_cast<double>(m),
          .transpose_b = true,
          .seconds = seconds};
}

TracedOperation kernel(std::int64_t bytes, double seconds, double gap = -1) {
  return {.name = "gelu", .bytes_read = bytes, .seconds = seconds, .gap = gap};
}

OperationTrace trace_of(const std::vector<TracedOperation>& operations) {
  OperationTrace trace;
  for (const TracedOperation& one : operations) trace.add(one);
  return trace;
}

TEST(MeasuredKernels, EntersTheMedianOfEachSizeInPlaceOfAnOlderOne) {
  MeasuredKernels kernels;
  for (const double seconds : {5.0, 2.0, 3.0}) {
    kernels.take(trace_of({product(16, seconds), kernel(64, 10 * seconds)}));
  }
  kernels.take(trace_of({product(32, 7), {.name = "all_reduce", .group = 0, .seconds = 9}}));
  Machine machine;
  machine.device.kernels["gemm nt fp32"] = {{{16, 8, 4}, 99}, {{8, 8, 4}, 1}};
  kernels.enter(machine);
  const auto& products = machine.device.kernels.at("gemm nt fp32");
  ASSERT_EQ(products.size(), 3);
  EXPECT_EQ(products[0].seconds, 1);  // not measured again
  EXPECT_EQ(products[1].seconds, 3);
  EXPECT_THAT(products[2].size, ElementsAre(32, 8, 4));
  EXPECT_EQ(machine.device.kernels.at("gelu fp32").front().seconds, 30);
  EXPECT_EQ(machine.device.kernels.size(), 2);  // a collective is no kernel
}

// A measured kernel keeps its measured time, whatever the machine's efficiencies.
TEST(MeasuredKernels, TakeAsLongAsTheyDid) {
  MeasuredKernels kernels;
  kernels.take(trace_of({product(16, 3), kernel(64, 5)}));
  Machine machine;
  machine.efficiency = {.products = 0.5, .memory = 0.25};
  kernels.enter(machine);
  EXPECT_DOUBLE_EQ(kernel_seconds(machine, product(16, 0)), 3);
  EXPECT_DOUBLE_EQ(kernel_seconds(machine, kernel(64, 0)), 5);
}

TEST(MeasuredKernels, RecognisesKernelsOfNewSizes) {
  MeasuredKernels kernels;
  EXPECT_TRUE(kernels.see(trace_of({product(16, 0), kernel(64, 0)})));
  EXPECT_FALSE(kernels.see(trace_of({product(16, 0), kernel(64, 0)})));
  EXPECT_TRUE(kernels.see(trace_of({product(24, 0)})));
  // A kernel is new if its bytes lie outside the range of the sizes seen.
  EXPECT_TRUE(kernels.see(trace_of({kernel(256, 0)})));
  EXPECT_FALSE(kernels.see(trace_of({kernel(128, 0)})));
  EXPECT_TRUE(kernels.see(trace_of({kernel(512, 0)})));
}

TEST(MeasuredKernels, TheHostBetweenKernelsIsAMeanWithoutTheLongest) {
  MeasuredKernels kernels;
  EXPECT_EQ(kernels.between(), 0);
  OperationTrace trace;
  for (int i = 0; i < 49; ++i) trace.add(kernel(64, 1, 2));
  trace.add(kernel(64, 1, 1000));  // another program used the machine
  trace.add(kernel(64, 1));        // without a host time
  kernels.take(trace);
  EXPECT_DOUBLE_EQ(kernels.between(), 2);
}

// The trace of one rank: kernels of these seconds, with a collective after each.
OperationTrace collective_of(const std::vector<double>& seconds,
                             const std::string& group = "tensor", bool asynchronous = false) {
  OperationTrace trace;
  const int number = trace.number_of(group, 2, 0);
  for (const double one : seconds) {
    trace.add(kernel(64, one));
    trace.add({.name = "all_reduce", .group = number, .asynchronous = asynchronous});
  }
  return trace;
}

TEST(MeasuredSkew, IsTheExcessOfTheLastRankOverTheMean) {
  const OperationTrace first = collective_of({1, 4}), second = collective_of({3, 2});
  MeasuredSkew skew;
  EXPECT_EQ(skew.part(), std::nullopt);
  skew.take({&first, &second});
  // The slowest ranks take 3 and 4, the means are 2 and 3.
  EXPECT_THAT(skew.part(), Optional(DoubleEq(7.0 / 5 - 1)));
  skew.take({&first, &first});
  EXPECT_THAT(skew.part(), Optional(DoubleEq(12.0 / 10 - 1)));
}

TEST(MeasuredSkew, IsOfBlockingCollectivesWithinLayers) {
  MeasuredSkew skew;
  const OperationTrace first = collective_of({1, 4}, "data"),
                       second = collective_of({3, 2}, "data");
  skew.take({&first, &second});
  const OperationTrace one = collective_of({1, 4}, "tensor", true),
                       two = collective_of({3, 2}, "tensor", true);
  skew.take({&one, &two});
  EXPECT_EQ(skew.part(), std::nullopt);
  // A trace that ended early isn't compared.
  const OperationTrace complete = collective_of({1, 4}), part = collective_of({1});
  skew.take({&complete, &part});
  EXPECT_EQ(skew.part(), std::nullopt);
  // The skew is never above 1.
  const OperationTrace quick = collective_of({1}), slow = collective_of({99});
  skew.take({&quick, &quick, &quick, &slow});
  EXPECT_THAT(skew.part(), Optional(1.0));
}

}  // namespace
}  // namespace trident

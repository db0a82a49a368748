#include "planner/machine/operation_times.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/planner/planner_machines.h"

namespace trident::testing {
namespace {

TEST(OperationTimes, AProductIsNeverFasterThanPeakOrMemoryAndNearThePeakWhereItIsLarge) {
  const Machine machine = dgx_a100();
  std::mt19937 random(1);
  const auto size = [&] { return 1 + static_cast<std::int64_t>(random() % 9000); };
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t m = size(), n = size(), k = size();
    const double flops = 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
    const double seconds = product_seconds(machine, DType::bf16, m, n, k);
    EXPECT_GE(seconds, flops / (312e12 * machine.efficiency.products));
    EXPECT_GE(seconds, 2.0 * static_cast<double>(m * k + k * n + m * n) /
                           (2.039e12 * machine.efficiency.memory));
    EXPECT_GE(product_seconds(machine, DType::bf16, m + 1, n, k), seconds);
    EXPECT_GE(product_seconds(machine, DType::bf16, m, n + 1, k), seconds);
    EXPECT_GE(product_seconds(machine, DType::bf16, m, n, k + 1), seconds);
  }
  const double large = product_seconds(machine, DType::bf16, 16384, 13824, 8192);
  EXPECT_LT(large, 1.1 * 2.0 * 16384 * 13824 * 8192 / (312e12 * machine.efficiency.products));
}

TEST(OperationTimes, MeasuredRatesStandInForThePeak) {
  Machine machine = dgx_a100();
  machine.device.kernels["gemm fp32"] = {{{1024, 1024, 1024}, 2.0 * (1 << 30) / 1e12},
                                         {{64, 64, 64}, 2.0 * (1 << 18) / 1e10}};
  machine.efficiency.products = 1;
  machine.device.launch = 0;
  const double known = product_seconds(machine, DType::f32, 1024, 1024, 1024);
  EXPECT_NEAR(known, 2.0 * (1 << 30) / 1e12, 1e-3 * known);
  const double small = product_seconds(machine, DType::f32, 64, 64, 64);
  EXPECT_NEAR(small, 2.0 * (1 << 18) / 1e10, 1e-3 * small);
  const double between = 2.0 * (1 << 24) / product_seconds(machine, DType::f32, 256, 256, 256);
  EXPECT_GT(between, 1e10);
  EXPECT_LT(between, 1e12);
}

TracedOperation traced(std::string_view name, DType dtype, std::int64_t bytes) {
  return {.name = name, .shape = {bytes}, .dtype = dtype, .bytes_read = bytes};
}

TEST(OperationTimes, KernelsThatWereMeasuredTakeThatTime) {
  Machine machine = dgx_a100();
  machine.device.launch = 0;
  machine.efficiency = {};
  machine.device.kernels["gelu_forward fp32"] = {{{1000}, 1e-6}, {{4000}, 8e-6}};
  const auto gelu = [&](std::int64_t bytes) {
    return kernel_seconds(machine, traced("gelu_forward", DType::f32, bytes));
  };
  EXPECT_NEAR(gelu(1000), 1e-6, 1e-18);
  EXPECT_NEAR(gelu(4000), 8e-6, 1e-18);
  EXPECT_NEAR(gelu(2000), std::sqrt(8e-12), 1e-12);  // halfway, on a logarithmic scale
  EXPECT_NEAR(gelu(8000), 16e-6, 1e-18);             // at the rate of the largest one
  EXPECT_NEAR(gelu(100), 1e-7, 1e-18);
  machine.efficiency.memory = 0.5;
  EXPECT_NEAR(gelu(1000), 2e-6, 1e-18);
  // The machine has no measurement of another dtype.
  EXPECT_EQ(kernel_seconds(machine, traced("gelu_forward", DType::bf16, 1000)),
            memory_seconds(machine, 1000));

  machine.device.kernels["gemm tn fp32"] = {{{64, 64, 64}, 1e-5}};
  machine.device.kernels["gemm nt fp32"] = {{{64, 64, 64}, 2e-5}};
  TracedOperation product{
      .name = "gemm", .shape = {64, 64, 64}, .dtype = DType::f32, .flops = 2.0 * (1 << 18)};
  product.transpose_a = true;
  EXPECT_NEAR(kernel_seconds(machine, product), 1e-5, 1e-12);
  product.transpose_a = false, product.transpose_b = true;
  EXPECT_NEAR(kernel_seconds(machine, product), 2e-5, 1e-12);

  machine.device.kernels["attention_forward fp32"] = {{{1e6, 1e4}, 1e-3}};
  TracedOperation attention = traced("attention_forward", DType::f32, 20000);
  attention.flops = 2e6;
  EXPECT_NEAR(kernel_seconds(machine, attention), 2e-3, 1e-9);
}

TEST(OperationTimes, LargeCollectivesTakeARingsTime) {
  Machine machine = dgx_a100();
  machine.efficiency.links = 1;
  const double bytes = 4e9;
  // Within a node a collective runs at a device's bandwidth; an all-reduce passes the ring twice.
  EXPECT_NEAR(collective_seconds(machine, Operation::all_reduce, bytes, {8, 8}),
              2 * 7.0 / 8 * bytes / 300e9, 1e-4);
  EXPECT_NEAR(collective_seconds(machine, Operation::all_gather, bytes, {8, 8}),
              7.0 / 8 * bytes / 300e9, 1e-4);
  // A group with one member in each of 16 nodes gets its devices' part of each node's link.
  EXPECT_NEAR(collective_seconds(machine, Operation::reduce_scatter, bytes, {16, 1}),
              15.0 / 16 * bytes / 25e9, 1e-3);
  // A group of all devices of 4 nodes runs a ring over all links of a node.
  EXPECT_NEAR(collective_seconds(machine, Operation::all_reduce, bytes, {32, 8}),
              2 * 31.0 / 32 * bytes / 200e9, 1e-3);
  EXPECT_EQ(collective_seconds(machine, Operation::all_reduce, bytes, {1, 1}), 0);
  EXPECT_NEAR(message_seconds(machine, bytes, true), bytes / 300e9, 1e-4);
  EXPECT_NEAR(message_seconds(machine, bytes, false), bytes / 25e9, 1e-4);
}

TEST(OperationTimes, SmallAllReducesOfManyTakeATreesTime) {
  const Machine machine = dgx_a100();
  const double seconds = collective_seconds(machine, Operation::all_reduce, 8, {1024, 8});
  EXPECT_LT(seconds, 2 * (7 * machine.across.latency + 3 * machine.inside.latency) + 1e-9);
  EXPECT_GT(seconds, 2 * 7 * machine.across.latency);
}

TEST(OperationTimes, WithoutLatencyBytesAloneTakeTime) {
  Machine machine = dgx_a100();
  machine.inside.latency = machine.across.latency = machine.device.launch = 0;
  const double links = machine.across.bandwidth * machine.efficiency.links;
  EXPECT_DOUBLE_EQ(collective_seconds(machine, Operation::reduce_scatter, 4e9, {32, 8}),
                   31.0 / 32 * 4e9 / links);
  EXPECT_EQ(collective_seconds(machine, Operation::all_reduce, 0, {32, 8}), 0);
  EXPECT_EQ(message_seconds(machine, 0, false), 0);
}

}  // namespace
}  // namespace trident::testing

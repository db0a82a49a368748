#include "training/lab/link_table.h"

#include <gmock/gmock.h>

#include "core/error.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kNccl = R"(# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor)
#
# Using devices
#  Rank  0 Group  0 Pid  31285 on   node-a device  0 [0x07] NVIDIA A100-SXM4-80GB
#  Rank  1 Group  0 Pid  31285 on   node-a device  1 [0x0f] NVIDIA A100-SXM4-80GB
#  Rank  2 Group  0 Pid  31285 on   node-a device  2 [0x47] NVIDIA A100-SXM4-80GB
#  Rank  3 Group  0 Pid  31285 on   node-a device  3 [0x4e] NVIDIA A100-SXM4-80GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    20.00    0.00    0.00      0    20.10    0.00    0.00      0
     1048576        262144     float     sum      -1    60.00   17.48   26.21      0    61.00   17.19   25.78      0
   134217728      33554432     float     sum      -1   877.5   152.95  229.43      0   878.0   152.87  229.30      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 85.1
)";

TEST(LinkTable, TakesBusBandwidthAndTheLatencyOfAStepFromNcclTests) {
  const Machine::Link link = read_link_table(kNccl, "table", {1, 1});
  EXPECT_DOUBLE_EQ(link.bandwidth, 229.43e9);
  EXPECT_DOUBLE_EQ(link.latency, 20e-6 / 4);  // a tree over four ranks, up and down
}

TEST(LinkTable, TakesTheFirstLatencyAndTheLargestBandwidthFromOsu) {
  const std::string latency =
      "# OSU MPI Latency Test v7.3\n# Size          Latency (us)\n1    1.50\n2   1.60\n4194304  "
      "400\n";
  const std::string bandwidth =
      "# OSU MPI Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n1  3.0\n1048576  "
      "12000.5\n4194304 "
      "11990.0\n";
  const Machine::Link link = read_link_table(latency + "\n" + bandwidth, "table", {1, 1});
  EXPECT_DOUBLE_EQ(link.latency, 1.5e-6);
  EXPECT_DOUBLE_EQ(link.bandwidth, 12000.5e6);
  // What isn't told stays.
  EXPECT_DOUBLE_EQ(read_link_table(latency, "table", {7, 1}).bandwidth, 7);
  EXPECT_DOUBLE_EQ(read_link_table(bandwidth, "table", {7, 3}).latency, 3);
}

TEST(LinkTable, WhatIsNoTableIsRefused) {
  for (const char* text :
       {"", "hello", "1 2 3", "# OSU MPI Latency Test\n", "# algbw busbw\nx y\n"}) {
    try {
      read_link_table(text, "file", {1, 1});
      ADD_FAILURE() << text;
    } catch (const RequestError& error) {
      EXPECT_THAT(error.what(), HasSubstr("file: needs the output of nccl-tests"));
    }
  }
}

}  // namespace
}  // namespace trident::testing

#include "planner/machine/link_table.h"

#include <gmock/gmock.h>

#include <tuple>

#include "base/error.h"

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
  const LinkTable table = read_link_table(kNccl, "table", {1, 1});
  const Machine::Link& link = table.link;
  EXPECT_FALSE(table.of_a_pair);
  EXPECT_DOUBLE_EQ(link.bandwidth, 229.43e9);
  EXPECT_DOUBLE_EQ(link.latency, 20e-6 / 4);  // a tree over four ranks, up and down
}

TEST(LinkTable, TakesTheFirstLatencyAndTheLargestBandwidthFromOsu) {
  const std::string latency =
      "# OSU MPI Latency Test v7.3\n# Size          Latency (us)\n1    1.50\n2   1.60\n4194304  "
      "400\n";
  const std::string bandwidth =
      "# OSU MPI-CUDA Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n1  3.0\n1048576  "
      "12000.5\n4194304 "
      "11990.0\n";
  const LinkTable table = read_link_table(latency + "\n" + bandwidth, "table", {1, 1});
  const Machine::Link& link = table.link;
  EXPECT_TRUE(table.of_a_pair);
  EXPECT_DOUBLE_EQ(link.latency, 1.5e-6);
  EXPECT_DOUBLE_EQ(link.bandwidth, 12000.5e6);
  // A value that the table doesn't contain stays.
  EXPECT_DOUBLE_EQ(read_link_table(latency, "table", {7, 1}).link.bandwidth, 7);
  EXPECT_DOUBLE_EQ(read_link_table(bandwidth, "table", {7, 3}).link.latency, 3);
}

// A table of four ranks, with a header row for each; `factor` is bus rate over algorithm rate.
LinkTable nccl_table(const std::string& first_line, const std::string& operation,
                     const std::string& root, double factor) {
  std::string text = first_line + "\n";
  for (int rank = 0; rank < 4; ++rank) {
    text += "#  Rank  " + std::to_string(rank) + " Group 0 Pid 1 on node-a device  0 [0x07] A100\n";
  }
  text += "# size count type redop root time algbw busbw #wrong\n";
  text += "8 2 float " + operation + " " + root + " 12.0 0.00 0.00 0\n";
  text += "134217728 33554432 float " + operation + " " + root + " 1000.0 100.00 " +
          std::to_string(100 * factor) + " 0\n";
  return read_link_table(text, "table", {1, 1});
}

TEST(LinkTable, RecognisesTheOperationOfNcclTests) {
  const LinkTable reduced = nccl_table("# nThread 1", "sum", "-1", 1.5);
  EXPECT_FALSE(reduced.of_a_pair);
  EXPECT_DOUBLE_EQ(reduced.link.latency, 12e-6 / 4);
  for (const auto& [operation, root, factor] :
       {std::tuple("sum", "-1", 0.75), std::tuple("none", "-1", 0.75), std::tuple("none", "0", 1.0),
        std::tuple("sum", "0", 1.0)}) {  // reduce-scatter, all-gather, broadcast, reduce
    const LinkTable table = nccl_table("# nThread 1", operation, root, factor);
    EXPECT_FALSE(table.of_a_pair) << operation << factor;
    EXPECT_DOUBLE_EQ(table.link.latency, 12e-6 / 3);
    EXPECT_DOUBLE_EQ(table.link.bandwidth, 100e9 * factor);
  }
  // Each rank sends one message. A newer version names the operation; for an older one its factor
  // identifies it.
  for (const LinkTable& table :
       {nccl_table("# Collective test starting: sendrecv_perf", "sum", "-1", 1),
        nccl_table("# nThread 1", "sum", "-1", 1)}) {
    EXPECT_TRUE(table.of_a_pair);
    EXPECT_DOUBLE_EQ(table.link.latency, 12e-6);
  }
  // A part of the all-to-all's traffic stays inside nodes, so the table gives no link's rate.
  const LinkTable all = nccl_table("# Collective test starting: alltoall_perf", "none", "-1", 0.75);
  EXPECT_FALSE(all.of_a_pair);
  EXPECT_EQ(all.link.bandwidth, 1);
  EXPECT_DOUBLE_EQ(all.link.latency, 12e-6);
}

TEST(LinkTable, TextThatIsNoTableIsRefused) {
  for (const char* text : {"", "hello", "1 2 3", "# OSU MPI Latency Test\n", "# algbw busbw\nx y\n",
                           "# OSU MPI Bi-Directional Bandwidth Test v7.3\n1 3.0\n",
                           "# OSU MPI Multiple Bandwidth / Message Rate Test v7.3\n1 3.0 2.0\n",
                           "# OSU MPI Allreduce Latency Test v7.3\n4 3.0\n", "# OSU MPI\n4 3.0\n",
                           "# algbw busbw\n8 2 float none -1 1e-320 4 0\n"}) {
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

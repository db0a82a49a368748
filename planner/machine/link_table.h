// Reads a link's bandwidth and latency from the output of nccl-tests (all_reduce_perf,
// sendrecv_perf and similar) or of OSU's micro-benchmarks (osu_bw, osu_latency; one file may hold
// the output of both). The function has no state; any thread may call it.
#pragma once

#include <string>
#include <string_view>

#include "planner/machine/machine.h"

namespace trident {

struct LinkTable {
  Machine::Link link;
  // True where the bandwidth is that of two devices by themselves (osu_bw, sendrecv_perf), not of a
  // ring that is spread over a node's adapters.
  bool of_a_pair = false;
};

// The bandwidth is the largest in the table. For nccl-tests it is the bus bandwidth: that of a
// device's link, or, where the test ran on several nodes, that of a node's link to other nodes. For
// osu_bw it is the reported bandwidth.
//
// The latency is that of one message: the time of the smallest size, divided by the number of
// consecutive steps of its collective. For osu_latency it is the reported latency. The output of
// alltoall_perf gives the latency alone.
//
// A value that the table lacks is taken from `known`. Throws RequestError, "NAME: problem", where
// the text is no such table.
LinkTable read_link_table(std::string_view text, const std::string& name,
                          const Machine::Link& known);

}  // namespace trident

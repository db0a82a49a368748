// What a link carries, from the output of nccl-tests (all_reduce_perf and its like, sendrecv_perf)
// or of OSU's micro-benchmarks (osu_bw, osu_latency; both may follow each other in one file).
#pragma once

#include <string>
#include <string_view>

#include "planner/machine/machine.h"

namespace trident {

struct LinkTable {
  Machine::Link link;
  // The bandwidth is that of two devices by themselves (osu_bw, sendrecv_perf), not of a ring that
  // a node's adapters share.
  bool of_a_pair = false;
};

// The bandwidth is the largest that the table has: nccl-tests' bus bandwidth, which is that of a
// device's link, or of a node's to others where the test went over several nodes; osu_bw's own. The
// latency is that of a message: the time of the smallest size over the steps that its collective
// takes one after the other (osu_latency: its own; all that alltoall_perf tells). What a table
// doesn't tell is as in `known`. RequestError, "NAME: problem", where the text is no such table.
LinkTable read_link_table(std::string_view text, const std::string& name,
                          const Machine::Link& known);

}  // namespace trident

// The pipeline schedules: pure functions from sizes to the list of actions of each rank. One file
// each; adding one is its file, a line here and a row in schedules.cc.
//
// p pipeline ranks, m micro-batches, v chunks per rank, r rank. Backwards here are full ones (B).
#pragma once

#include <string>
#include <vector>

#include "scheduler/action.h"

namespace trident {

struct ScheduleRequest {
  std::string kind = "1f1b";
  int stages = 1;        // p >= 1
  int microbatches = 1;  // m >= 1
  int chunks = 0;        // v; 0: the kind's default, 1, for interleaved_1f1b 2
  int group_size = 0;    // g of interleaved_1f1b; 0: its default rule. An error for other kinds
};

// The request with chunks and group size filled in. Kinds: naive, gpipe, 1f1b, interleaved_1f1b.
// RequestError, worded to follow a place ("/pipeline/schedule: "), for an unknown kind (with the
// nearest known one), one that is not there yet, and sizes that the kind can't run (with the
// nearest that it can).
ScheduleRequest complete(const ScheduleRequest& request);

// Makes the schedule that `request`, completed, asks for.
Schedule make_schedule(const ScheduleRequest& request);

// The kinds that make_schedule makes.
std::vector<std::string> schedule_kinds();

// One micro-batch at a time: F, B of micro-batch 0, then of 1, ... No two ranks ever overlap.
Schedule naive(int stages, int microbatches);

// GPipe (Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline
// Parallelism"): all F, then all B in the order 0 ... m-1.
Schedule gpipe(int stages, int microbatches);

// 1F1B, PipeDream-Flush (Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training"):
// min(p-1-r, m) F; then pairs F, B; then the remaining B.
Schedule one_f_one_b(int stages, int microbatches);

// Interleaved 1F1B (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM"): warm-up min(2(p-r-1) + (v-1)g, mv) chunk-forwards; then pairs; then
// the remaining backwards. The k-th chunk-forward is chunk (k mod gv) div g of micro-batch
// g(k div gv) + k mod g; backwards the same with chunk v-1-chunk. A last group of fewer than g
// micro-batches is run the same way with its own size, as Megatron does.
// group_size 0: g = p where p divides m, else m / max(1, floor(m/p)) where that is whole, else a
// RequestError. A given g is that or has p <= g <= m and m mod g zero or >= p.
Schedule interleaved_one_f_one_b(int stages, int microbatches, int chunks, int group_size = 0);

// The group size that interleaved 1F1B takes by the rule above, or its RequestError.
int interleaved_group_size(int stages, int microbatches, int group_size);

}  // namespace trident

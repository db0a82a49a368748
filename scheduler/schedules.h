// The pipeline schedules: pure functions from sizes to the list of actions of each rank. To add a
// schedule, write its file, declare its function here and add a row to schedule_registry(). A
// program that links the library adds its row to a copy of that registry.
//
// Letters: p pipeline ranks, m micro-batches, v chunks per rank, r rank. A backward is a full
// backward (B) unless it is split into the gradient of the input (I) and of the weights (W).
#pragma once

#include <string>
#include <vector>

#include "scheduler/action.h"
#include "scheduler/simulate.h"
#include "settings/constraints.h"

namespace trident {

struct ScheduleKind;
struct AnalyticBubble;  // scheduler/analytic.h
struct UniformTimes;

// The length that auto minimises. A run whose iterations overlap (warm_up.h) takes the longest span
// of a rank per iteration, any other run the makespan. `step` picks the length that applies to a
// run of the schedule found.
enum class Objective : std::uint8_t { step, makespan, span };
double value_of(Objective, const Schedule&, const Bubble&);

struct ScheduleRequest {
  std::string kind = "1f1b";
  int stages = 1;        // p >= 1
  int microbatches = 1;  // m >= 1
  int chunks = 0;        // v; 0: the schedule's default, which is 1, or 2 if ranks hold several
                         // chunks
  int group_size = 0;    // g of the interleaved schedules; 0: the default. An error for others
  // The micro-batches in flight that a rank may hold. A schedule that holds more is an error; auto
  // stays within it.
  MemoryLimit memory;
  // The times for auto's search; other schedules ignore them.
  ShareTimes times;
  // The times by stage, [p * chunks], where stages are known to differ. They replace `times` for
  // schedules of that number of stages. Empty: not given.
  StageTimes stage_times;
  double transfer = 0;
  Objective objective = Objective::step;
  // The seconds that auto may search. 0: a fixed number of tries, equal on every machine, that
  // takes about one second.
  double search_seconds = 0;
  const std::vector<ScheduleKind>* registry =
      nullptr;  // the table of `kind`; null: schedule_registry()
};

// A row of the schedule registry.
struct ScheduleKind : ScheduleConstraints {
  // Makes the schedule from a completed request. Throws RequestError for sizes that it can't run,
  // with the nearest sizes that it can.
  Schedule (*make)(const ScheduleRequest&) = nullptr;
  // The published formula of its bubble; null if there is none.
  AnalyticBubble (*analytic)(const ScheduleRequest&, const UniformTimes&) = nullptr;
};

// The schedules of this library.
const std::vector<ScheduleKind>& schedule_registry();
const std::vector<ScheduleKind>& registry_of(const ScheduleRequest&);
// The row of the request's schedule. Throws RequestError for an unknown name, with the nearest
// known name.
const ScheduleKind& kind_of(const ScheduleRequest&);

// Fills in chunks and group size. Throws RequestError, worded to follow a place
// ("/pipeline/schedule: "), for an unknown schedule and for sizes that the schedule can't run, with
// the nearest sizes that it can.
ScheduleRequest complete(const ScheduleRequest& request);

// Clears chunks and group size where the schedule has no choice of them. It serves to compare
// several schedules under one request.
ScheduleRequest without_unsupported_sizes(ScheduleRequest request);

// Completes `request` and makes its schedule. Throws Error if the schedule updates weights at other
// times than its row declares.
Schedule make_schedule(const ScheduleRequest& request);

// Throws RequestError if a rank holds more than the limit.
void check_memory(const Schedule& schedule, const MemoryLimit& memory);

// One micro-batch at a time: F, B of micro-batch 0, then of 1, ... Only one rank works at a time.
Schedule naive(int stages, int microbatches);

// GPipe (Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline
// Parallelism"): all F, then all B in the order 0 ... m-1.
Schedule gpipe(int stages, int microbatches);

// 1F1B, PipeDream-Flush (Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training"):
// min(p-1-r, m) F; then pairs F, B; then the remaining B.
Schedule one_f_one_b(int stages, int microbatches);

// Interleaved 1F1B (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM"): warm-up min(2(p-r-1) + (v-1)g, mv) chunk forwards; then pairs; then
// the remaining backwards. The k-th chunk forward is chunk (k mod gv) div g of micro-batch g(k div
// gv) + k mod g; backwards the same with chunk v-1-chunk. A last group of fewer than g
// micro-batches runs the same way with its own size, as in Megatron. Group sizes: interleaved.h.
Schedule interleaved_one_f_one_b(int stages, int microbatches, int chunks, int group_size = 0);

// Looped breadth-first (Lamy-Poirier 2023, "Breadth-First Pipeline Parallelism"): all m F of chunk
// 0, then of chunk 1, ...; then the backwards from the last chunk to the first, micro-batches from
// m-1 to 0. It is the only schedule that adds gradients in another order.
Schedule looped_bfs(int stages, int microbatches, int chunks);

// ZB-H1 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism"): p-1-r F; then for each i an F while
// any is left, I of i, and from i = r on the oldest W; then the remaining W. It needs the memory of
// 1F1B. Throws RequestError unless m >= 2p.
Schedule zb_h1(int stages, int microbatches);

// ZB-H2 (the same paper): as ZB-H1 with 2(p-1-r) F at first and W from i = 2r on. Its bubble is
// zero only where no rank waits for the others between its last W and its next F.
Schedule zb_h2(int stages, int microbatches);

// Interleaved zero bubble (ZB1P, as PyTorch's ScheduleInterleavedZeroBubble), ZB-H1's idea over
// chunks: interleaved 1F1B's orders with a warm-up of min(p-r-1 + (v-1)g, mv) chunk forwards;
// backwards split, W r steps behind.
Schedule interleaved_zero_bubble(int stages, int microbatches, int chunks, int group_size = 0);

// ZB-V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): stages along a V; 0 and 1
// are the rank's chunks. The list is planned for max(m, 2p-1) micro-batches and leaves out those
// from m on: 2(p-r)-1 times F0; r times F1, F0; p-r times F1, I1, W1; while a forward is left F0 if
// any is left, I0, W0, F1, I1, W1; r times I0, I1; p-r times I0, W0; the remaining W1, then W0.
Schedule zbv(int stages, int microbatches);

// DualPipeV (DeepSeek-AI 2025): the V with fused pairs, written X&Y: 2(p-r-1) times F0; r+1 times
// F0, F1; p-r-1 times I1, W, F1; m-2p+r+1 times F0&B1, F1&B0 (on the last rank the first F0, B1 are
// not a pair); p-r-1 times B1, F1&B0; r+1 times B1, B0, split from the middle of them on; p-r-1
// times W, I0; r+1 times W; W by age over both chunks. Throws RequestError unless m >= 2p.
Schedule dualpipev(int stages, int microbatches);

// PipeDream (Narayanan et al. 2019, "PipeDream: Generalized Pipeline Parallelism for DNN
// Training"): 1F1B's order without a flush. Every micro-batch updates its stage. A backward uses
// the weights that its forward used, so rank r keeps up to p-r versions.
Schedule pipedream(int stages, int microbatches);

// PipeDream-2BW (Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training"): 1F1B's
// order without a flush. The gradients of a batch of m micro-batches are computed with weights one
// batch older than the weights that they update: two versions.
Schedule pipedream_2bw(int stages, int microbatches);

}  // namespace trident

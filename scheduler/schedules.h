// The pipeline schedules: pure functions from sizes to the list of actions of each rank. Adding one
// is its file, its declaration here and a row of schedule_registry(); a program that links the
// library adds its row to a copy of the table.
//
// p pipeline ranks, m micro-batches, v chunks per rank, r rank. A backward is a full one (B) unless
// it is split into the gradient of the input (I) and of the weights (W).
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

// What auto makes short. A run whose iterations overlap (warm_up.h) takes the longest span of a
// rank for each, any other the makespan; `step` is what the found schedule's own run will take.
enum class Objective : std::uint8_t { step, makespan, span };
double value_of(Objective, const Schedule&, const Bubble&);

struct ScheduleRequest {
  std::string kind = "1f1b";
  int stages = 1;        // p >= 1
  int microbatches = 1;  // m >= 1
  int chunks = 0;        // v; 0: the kind's default, 1 or, where ranks hold several, 2
  int group_size = 0;    // g of the interleaved kinds; 0: its default rule. An error for others
  // What a rank may hold of micro-batches in flight. A kind that holds more is an error; auto keeps
  // to it.
  MemoryLimit memory;
  // What auto searches for; others look at no time.
  ShareTimes times;
  // The same by stage, [p * chunks], where the stages are known to differ; instead of `times`, for
  // schedules of that many stages. Empty: none.
  StageTimes stage_times;
  double transfer = 0;
  Objective objective = Objective::step;
  // Seconds that auto may search; 0: as many tries as take about one, the same on every machine.
  double search_seconds = 0;
  const std::vector<ScheduleKind>* registry =
      nullptr;  // the table of `kind`; null: schedule_registry()
};

// A row of the schedules' table.
struct ScheduleKind : ScheduleConstraints {
  // From a completed request. RequestError where it can't be of these sizes, with the nearest that
  // it can.
  Schedule (*make)(const ScheduleRequest&) = nullptr;
  // What theory says of its bubble; null: nothing.
  AnalyticBubble (*analytic)(const ScheduleRequest&, const UniformTimes&) = nullptr;
};

// Those of this library.
const std::vector<ScheduleKind>& schedule_registry();
const std::vector<ScheduleKind>& registry_of(const ScheduleRequest&);
// The request's row. RequestError for an unknown kind, with the nearest known one.
const ScheduleKind& kind_of(const ScheduleRequest&);

// The request with chunks and group size filled in. RequestError, worded to follow a place
// ("/pipeline/schedule: "), for an unknown kind and for sizes that the kind can't run (with the
// nearest that it can).
ScheduleRequest complete(const ScheduleRequest& request);

// The request with no chunks and group size where its kind has no choice of them: for several kinds
// that are compared under one request.
ScheduleRequest without_foreign_sizes(ScheduleRequest request);

// Makes the schedule that `request`, completed, asks for. Error where it updates otherwise than its
// row says.
Schedule make_schedule(const ScheduleRequest& request);

// RequestError if a rank holds more than allowed.
void need_room(const Schedule& schedule, const MemoryLimit& memory);

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
// Group sizes: interleaved.h.
Schedule interleaved_one_f_one_b(int stages, int microbatches, int chunks, int group_size = 0);

// Looped breadth-first (Lamy-Poirier 2023, "Breadth-First Pipeline Parallelism"): all m F of chunk
// 0, then of chunk 1, ...; then the backwards from the last chunk to the first, micro-batches from
// m-1 to 0: the one kind that adds gradients in another order.
Schedule looped_bfs(int stages, int microbatches, int chunks);

// ZB-H1 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism"): p-1-r F; then for each i an F while
// any is left, I of i, and from i = r on the oldest W; then the remaining W. Memory of 1F1B.
// m >= 2p, else RequestError.
Schedule zb_h1(int stages, int microbatches);

// ZB-H2 (the same paper): the same with 2(p-1-r) F at first and W from i = 2r on. Its bubble is
// zero only where no rank waits for the others between its last W and its next F.
Schedule zb_h2(int stages, int microbatches);

// ZB-H1's idea over chunks (ZB1P, as PyTorch's ScheduleInterleavedZeroBubble): interleaved 1F1B's
// orders with a warm-up of min(p-r-1 + (v-1)g, mv) chunk-forwards; backwards split, W r steps
// behind.
Schedule interleaved_zero_bubble(int stages, int microbatches, int chunks, int group_size = 0);

// ZB-V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): stages along a V, 0 and 1
// the rank's chunks. Made for max(m, 2p-1) micro-batches, of which those from m on are left out:
// 2(p-r)-1 times F0; r times F1, F0; p-r times F1, I1, W1; while a forward is left F0 if there is
// one, I0, W0, F1, I1, W1; r times I0, I1; p-r times I0, W0; the remaining W1, then W0.
Schedule zbv(int stages, int microbatches);

// DualPipeV (DeepSeek-AI 2025): the V with fused pairs; X&Y is one: 2(p-r-1) times F0; r+1 times
// F0, F1; p-r-1 times I1, W, F1; m-2p+r+1 times F0&B1, F1&B0 (on the last rank the first F0, B1 are
// no pair); p-r-1 times B1, F1&B0; r+1 times B1, B0, split from the middle of them on; p-r-1 times
// W, I0; r+1 times W; W by age over both chunks. m >= 2p, else RequestError.
Schedule dualpipev(int stages, int microbatches);

// PipeDream (Narayanan et al. 2019, "PipeDream: Generalized Pipeline Parallelism for DNN
// Training"): 1F1B's order without a flush; every micro-batch updates its stage, and a backward
// uses the weights that its forward used, of which rank r keeps up to p-r versions.
Schedule pipedream(int stages, int microbatches);

// PipeDream-2BW (Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training"): 1F1B's
// order without a flush; the gradients of a batch of m micro-batches are taken with, and applied
// to, weights one batch apart: two versions.
Schedule pipedream_2bw(int stages, int microbatches);

}  // namespace trident

// What a rank's ledger and its groups will show: training steps run on a planning device
// (core/device.h), where the same code takes the same memory, enters what it would do into a trace
// (core/operation_trace.h), and computes nothing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/device.h"
#include "core/ledger.h"
#include "core/operation_trace.h"
#include "datasets/batch_sampler.h"
#include "models/architecture.h"
#include "parallel/zero/bucket_layout.h"
#include "planner/plan/step_traffic.h"
#include "scheduler/run_lists.h"
#include "scheduler/sent_messages.h"
#include "settings/config.h"

namespace trident {

class RankModel;
class Stepper;

struct PlannedMemory {
  std::array<std::int64_t, category_count> peak{};  // bytes of each category
  std::int64_t peak_total = 0;                      // highest sum over the categories
  std::int64_t of(Category category) const { return peak[static_cast<std::size_t>(category)]; }
  bool operator==(const PlannedMemory&) const = default;
};

// Whether it runs on a GPU, by its config and, for "auto", this machine.
bool is_for_gpu(const RuntimeConfig&);

struct PlannedRank {
  PlannedMemory memory;
  PlannedMemory collecting;           // if it collects the monitor's reports, as world rank 0 does
  StepTraffic traffic;                // of a step
  std::vector<BucketLayout> buckets;  // of its parameters, which have no memory any more
  bool rolls_back = false;            // its updates may be rolled back
};

// A step, operation by operation; TracedOperation::action counts in `actions`.
struct TracedStep {
  OperationTrace trace = OperationTrace();
  std::vector<Action> actions = {};
  std::int64_t microbatches = 0;  // that it ran, maybe fewer than the config has
};

// A rank as it ran by itself, others made up (parallel/transport/planning.h).
struct MeasuredRank {
  std::vector<double> seconds;  // of each iteration that counts, making others up included
  TracedStep step;              // of the fastest: a machine's other work only ever slows one
  PlannedMemory memory;         // that its ledger had
};

// What is called while a rank runs by itself.
struct EachIteration {
  std::function<void()> begin = {};                     // before each, also those two
  std::function<void(const OperationTrace&)> ran = {};  // after each that counts
};

// Plans the first rank at each place of a pipeline; others there hold as much. Of many
// micro-batches only as many are run as bring every rank to its peak.
class RankPlanner {
 public:
  // `schedule` is the config's. The architecture outlives the planner.
  RankPlanner(const Config&, const Architecture&, const Schedule& schedule);
  PlannedRank plan(int pipeline) const;
  // The same without its traffic, which may take a longer run to tell.
  PlannedRank plan_memory(int pipeline) const;
  // What the rank does in a step, kernels included, of few micro-batches.
  TracedStep trace(int pipeline) const;
  // Runs `rank` of the world on a device that computes, with random tokens: so many iterations
  // after two that don't count.
  MeasuredRank measure(int rank, Device& device, int iterations, const EachIteration& = {}) const;
  // What is run in place of the schedule, but for a trace.
  const Config& config() const { return run_.config; }
  const Schedule& schedule() const { return run_.schedule; }

 private:
  struct Run {
    Config config;
    Schedule schedule;
    std::shared_ptr<const RunLists> lists;
    std::shared_ptr<const SentMessages> sent;  // of `lists`; nullptr where they aren't counted
  };
  // Makes the rank's model and stepper on the device and hands them over.
  template <class Visit>
  void with_stepper(const Run& run, int rank, Device& device, Visit visit) const;
  // Of the first rank at that place, on the planning device.
  template <class Visit>
  void with_stepper(const Run& run, int pipeline, Visit visit) const;
  static Run run_of(const Config& config, const Schedule& schedule);
  // Traffic is left out where it can't be told from fewer micro-batches.
  PlannedRank plan(const Run& run, int pipeline, std::optional<StepTraffic>& traffic) const;
  std::int64_t longest_list(int i) const;
  PlannedRank plan(const Run& run, int pipeline, Context& context, RankModel& model,
                   Stepper& stepper, std::optional<StepTraffic>& traffic) const;

  Config config_;
  const Architecture& architecture_;
  Schedule schedule_;
  Run run_;     // for memory and traffic
  Run traced_;  // with no more micro-batches than trace() needs
  bool on_gpu_ = false;
  std::unique_ptr<Device> device_;
  mutable std::optional<IterationLists> lists_;  // of the config
  // All zeros, for every rank the same.
  mutable std::vector<HostMicroBatch> batches_;
};

// What a rank takes beside its ledger: its part of the process, its code and libraries.
std::int64_t library_bytes(const Config&);

}  // namespace trident

// Plans one rank: the peaks of its ledger and the traffic of its groups. Training steps run on a
// planning device (core/device.h). There the same code allocates the same memory and enters its
// operations into a trace (core/operation_trace.h), but computes nothing.
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
  std::array<std::int64_t, category_count> peak{};  // bytes by category
  std::int64_t peak_total = 0;                      // highest sum over the categories
  std::int64_t of(Category category) const { return peak[static_cast<std::size_t>(category)]; }
  bool operator==(const PlannedMemory&) const = default;
};

// Whether the run uses a GPU, by its config and, for "auto", by this machine's devices.
bool is_for_gpu(const RuntimeConfig&);

struct PlannedRank {
  PlannedMemory memory;
  PlannedMemory collecting;  // for the rank that collects the monitor's reports (world rank 0)
  StepTraffic traffic;       // of one step
  std::vector<BucketLayout> buckets;  // layouts of its parameters, which hold no memory any more
  std::int64_t buffer_bytes = 0;      // of its buffers (ParameterBuckets::buffers)
  bool rolls_back = false;            // whether its updates may be rolled back
};

// A step, operation by operation. TracedOperation::action is an index into `actions`.
struct TracedStep {
  OperationTrace trace = OperationTrace();
  std::vector<Action> actions = {};
  std::int64_t microbatches = 0;  // number that ran, maybe fewer than in the config
};

// A rank that ran by itself; it makes up the other ranks' data (parallel/transport/planning.h).
struct MeasuredRank {
  std::vector<double> seconds;  // time of each iteration after the warm-up, made-up data included
  TracedStep step;  // the fastest iteration's: other work on the machine only slows iterations down
  PlannedMemory memory;  // from its ledger
};

// Callbacks while a rank runs by itself.
struct EachIteration {
  std::function<void()> begin = {};                     // before each iteration, warm-up included
  std::function<void(const OperationTrace&)> ran = {};  // after each iteration, warm-up excluded
};

// Plans the first rank at each place of a pipeline; the other ranks there hold as much. If the
// config has many micro-batches, it runs only enough of them to bring every rank to its peak. A
// planner caches results, so one thread may use it at a time.
class RankPlanner {
 public:
  // `schedule` must be the config's. The architecture must outlive the planner.
  RankPlanner(const Config&, const Architecture&, const Schedule& schedule);
  PlannedRank plan(int pipeline) const;
  // Returns the plan without traffic, which may need a longer run.
  PlannedRank plan_memory(int pipeline) const;
  // Returns the rank's operations in a step of few micro-batches, kernels included.
  TracedStep trace(int pipeline) const;
  // Runs `rank` of the world on a device that computes, with random tokens: two warm-up iterations,
  // then `iterations` measured ones.
  MeasuredRank measure(int rank, Device& device, int iterations, const EachIteration& = {}) const;
  // The config and the schedule that plan() runs in place of the given ones. trace() runs others.
  const Config& config() const { return run_.config; }
  const Schedule& schedule() const { return run_.schedule; }

 private:
  struct Run {
    Config config;
    Schedule schedule;
    std::shared_ptr<const RunLists> lists;
    std::shared_ptr<const SentMessages> sent;  // of `lists`; nullptr where messages aren't counted
  };
  // Makes the rank's model and stepper on the device and passes them to `visit`.
  template <class Visit>
  void with_stepper(const Run& run, int rank, Device& device, Visit visit) const;
  // Does the same for the first rank at that place, on the planning device.
  template <class Visit>
  void with_stepper(const Run& run, int pipeline, Visit visit) const;
  static Run run_of(const Config& config, const Schedule& schedule);
  // `traffic` stays empty where it can't be derived from fewer micro-batches.
  PlannedRank plan(const Run& run, int pipeline, std::optional<StepTraffic>& traffic) const;
  std::int64_t longest_list(int i) const;
  PlannedRank plan(const Run& run, int pipeline, Context& context, RankModel& model,
                   Stepper& stepper, std::optional<StepTraffic>& traffic) const;

  Config config_;
  const Architecture& architecture_;
  Schedule schedule_;
  Run run_;     // for memory and traffic
  Run traced_;  // has no more micro-batches than trace() needs
  bool on_gpu_ = false;
  std::unique_ptr<Device> device_;
  mutable std::optional<IterationLists> lists_;  // of config_
  // All zeros, the same for every rank.
  mutable std::vector<HostMicroBatch> batches_;
};

// Returns the bytes of a rank that its ledger doesn't count: its part of the process, its code and
// libraries.
std::int64_t library_bytes(const Config&);

}  // namespace trident

// Older versions of a rank's weights, for schedules in which an update comes between a
// micro-batch's forward and its backward: weight stashing (Narayanan et al. 2019, "PipeDream") and
// double buffering (Narayanan et al. 2021, PipeDream-2BW).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "parallel/state.h"
#include "parallel/topology.h"
#include "parallel/zero/buckets.h"

namespace trident {

class WeightStash {
 public:
  // With batch 0 a forward uses the weights that are live when it starts (PipeDream). Otherwise
  // `batch` micro-batches form a batch, and micro-batch n, of batch b = n / batch, uses the weights
  // after b-1 updates (2BW).
  WeightStash(ParameterBuckets& buckets, std::int64_t batch) : buckets_(buckets), batch_(batch) {}

  // Resumes a run after this many `updates`, with micro-batch `next`. The micro-batches in flight
  // use the weights of ages[i] updates ago, in the order in which they will be taken. Allocates
  // memory for these versions (append_state()).
  void resume_after(Context&, WeightVersion updates, std::int64_t next,
                    const std::vector<std::int64_t>& ages);
  // Adds the versions that are kept, each parameter's as "weight-<age>".
  void append_state(const Topology&, State& into) const;

  // The version that micro-batch n (counted over the run) uses from its forward to its backward.
  WeightVersion take(std::int64_t microbatch);
  // Reports that the micro-batch's backward is done.
  void release(std::int64_t microbatch);
  // Copies the weights if a micro-batch still needs them. Call it before the weights change, once
  // for each update.
  void before_update(Context&);
  WeightVersion live() const { return live_; }  // updates so far, skipped ones included

 private:
  void drop(WeightVersion version);
  void keep(WeightVersion version, const std::vector<Tensor>& buckets);

  ParameterBuckets& buckets_;
  std::int64_t batch_;
  WeightVersion live_ = 0;
  WeightVersion first_ = 0;          // the version of micro-batch 0
  std::deque<WeightVersion> begun_;  // of micro-batches that are taken again after resuming
  std::map<std::int64_t, WeightVersion> taken_;  // by micro-batch in flight
  std::map<WeightVersion, int> users_;
  std::map<WeightVersion, std::vector<Tensor>> kept_;  // by bucket
};

}  // namespace trident

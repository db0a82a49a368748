// Older versions of a rank's weights, for schedules whose backward comes after an update that its
// forward had not seen: weight stashing (Narayanan et al. 2019, "PipeDream") and double buffering
// (Narayanan et al. 2021, PipeDream-2BW).
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
  // batch 0: a forward uses the weights that it meets (PipeDream). Else micro-batches n come in
  // batches of that many, and batch b uses the weights after b-1 updates (2BW), b = n / batch.
  WeightStash(ParameterBuckets& buckets, std::int64_t batch) : buckets_(buckets), batch_(batch) {}

  // For a run that goes on after so many `updates`, with micro-batch `next`: those that are in
  // flight use the weights of ages[i] updates ago, in the order in which they will be taken. Makes
  // room for these versions (list()).
  void go_on(Context&, WeightVersion updates, std::int64_t next,
             const std::vector<std::int64_t>& ages);
  // The versions that are kept, each parameter's as "weight-<age>".
  void append_state(const Topology&, State& into) const;

  // The version that micro-batch n (counted over the run) uses from its forward to its backward.
  WeightVersion take(std::int64_t microbatch);
  // Its backward is done.
  void release(std::int64_t microbatch);
  // Before the weights change: copies them if a micro-batch still needs them. Once for each update.
  void before_update(Context&);
  WeightVersion live() const { return live_; }  // updates so far, left-out ones included

 private:
  void drop(WeightVersion version);
  void keep(WeightVersion version, const std::vector<Tensor>& buckets);

  ParameterBuckets& buckets_;
  std::int64_t batch_;
  WeightVersion live_ = 0;
  WeightVersion first_ = 0;                      // the one that micro-batch 0 used, or uses
  std::deque<WeightVersion> begun_;              // of micro-batches that are taken again
  std::map<std::int64_t, WeightVersion> taken_;  // by micro-batch in flight
  std::map<WeightVersion, int> users_;
  std::map<WeightVersion, std::vector<Tensor>> kept_;  // by bucket
};

}  // namespace trident

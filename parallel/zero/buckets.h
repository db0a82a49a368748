// The flat buffers behind a rank's parameters, and what a data-parallel rank holds of each.
//
// ZeRO (Rajbhandari 2019), S = elements / data-parallel size: stage 0 holds and updates whole
// buckets; stage 1 updates a shard of S elements; stage 2 holds only that shard of the reduced
// gradient, stage 3 only that shard of the weights, unless the bucket is persistent.
// parallel/zero/gradient_reduction.h and weight_gathering.h move what is missing.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/context.h"
#include "parallel/parameter.h"
#include "parallel/state.h"
#include "parallel/topology.h"
#include "parallel/zero/bucket_layout.h"

namespace trident {

struct BucketOptions {
  DType dtype = DType::f32;  // of the weights; master weights are fp32
  int zero_stage = 0;
  BucketLimits limits;
};

// One bucket's memory.
struct Bucket {
  BucketLayout layout;
  // layout.data on this rank; replicas are undefined where nobody holds the same.
  ProcessGroup sharing, replicas;
  // What this rank updates: [begin, begin + count) of the bucket; all of it in stage 0.
  std::int64_t begin = 0, count = 0;
  Tensor weights;  // (elements); undefined in stage 3, but for persistent buckets
  Tensor shard;    // (count) of the weights: a view of `weights`, or all that is held
  // (count) fp32; `shard` itself where the weights are fp32, else undefined until keep_masters().
  Tensor master;
  // (count) reduced gradients, this rank's part; set by GradientReduction.
  Tensor gradient;

  bool gathered() const { return !weights; }  // before each use
  bool shared() const { return sharing.size() > 1; }
  // Which of all that hold the same elements this rank is, from which of those at the same place
  // among them that see other samples: elements that all who share the bucket have alike, or
  // (`cut`) that are its shard.
  Holder holder(const Holder& of_part, bool cut) const {
    const Holder holder = cut ? of_part : of_part.times(sharing.rank(), sharing.size());
    return replicas.defined() ? holder.times(replicas.rank(), replicas.size()) : holder;
  }
  // Its gradient is summed over somebody.
  bool reduces_gradient() const { return shared() || replicas.defined(); }
};

class ParameterBuckets {
 public:
  // Allocates zeroed weights and binds the parameters to them. Groups as backward_groups().
  ParameterBuckets(Context&, const std::vector<ParameterGroup>& groups, const BucketOptions&,
                   const Topology&);

  std::vector<Bucket>& buckets() { return buckets_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  std::size_t bucket_of(const Parameter& parameter) const { return bucket_of_.at(&parameter); }
  DType dtype() const { return options_.dtype; }
  int zero_stage() const { return options_.zero_stage; }

  // Allocates master weights, for a model that is trained; they begin as the weights are now.
  // Before initial values are set, or these come rounded.
  void keep_masters(Context&);

  // Sets elements of a parameter, from `first` of its local shape on, from fp32 values: what is
  // held here of its weights and master weights.
  void set(Context&, const Parameter&, const Tensor& values, std::int64_t first = 0);
  // The weights that are held here follow the master weights, as after an update: rounded to the
  // weights' type.
  void round_masters(Context&);

  // Adds what is held here of this kind: weights, masters (where there are any) or gradients.
  void append_state(StateKind kind, const Topology&, State& into) const;

 private:
  BucketOptions options_;
  std::vector<Bucket> buckets_;
  std::map<const Parameter*, std::size_t> bucket_of_;
};

// Binds the weights of a bucket's parameters to `weights` (elements), or to nothing.
void bind_weights(const BucketLayout&, const Tensor& weights);

}  // namespace trident

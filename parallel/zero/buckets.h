// The flat buffers behind a rank's parameters, and the part of each that a data-parallel rank
// holds.
//
// ZeRO (Rajbhandari 2019), S = elements / data-parallel size: stage 0 holds and updates complete
// buckets; stage 1 updates a shard of S elements; stage 2 holds only that shard of the reduced
// gradient; stage 3 holds only that shard of the weights, unless the bucket is persistent.
// parallel/zero/gradient_reduction.h and parallel/zero/weight_gathering.h communicate the missing
// parts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/context.h"
#include "parallel/parameter.h"
#include "parallel/state.h"
#include "parallel/topology.h"
#include "parallel/zero/bucket_layout.h"

namespace trident {

struct BucketOptions {
  // Of the weights of parameters that don't keep fp32; master weights are fp32.
  DType dtype = DType::f32;
  int zero_stage = 0;
  BucketLimits limits;
};

// The memory of one bucket.
struct Bucket {
  BucketLayout layout;
  // The groups of layout.data on this rank. `replicas` is undefined where no other rank holds the
  // same shard.
  ProcessGroup sharing, replicas;
  // This rank updates [begin, begin + count) of the bucket; the complete bucket in stage 0.
  std::int64_t begin = 0, count = 0;
  Tensor weights;  // (elements); undefined in stage 3, unless persistent or not shared
  Tensor shard;    // (count) of the weights: a view of `weights`, or all that is held
  // (count) fp32; `shard` itself where the weights are fp32, else undefined until keep_masters().
  Tensor master;
  // (count) reduced gradients, this rank's part; GradientReduction sets it.
  Tensor gradient;

  bool gathered() const { return !weights; }  // its weights are gathered before each use
  // Whether the weights are of another type than the masters.
  bool rounds_master() const { return shard.dtype() != DType::f32; }
  bool shared() const { return sharing.size() > 1; }
  // The number of this rank among all ranks that hold the same elements. `of_part` is its number
  // among the ranks that see the same samples (Topology::holder). With `is_shard` the elements are
  // this rank's shard; without it all ranks that share the bucket hold them.
  Holder holder(const Holder& of_part, bool is_shard) const {
    const Holder holder = is_shard ? of_part : of_part.times(sharing.rank(), sharing.size());
    return replicas.defined() ? holder.times(replicas.rank(), replicas.size()) : holder;
  }
  // Whether its gradient is summed over other ranks.
  bool reduces_gradient() const { return shared() || replicas.defined(); }
};

class ParameterBuckets {
 public:
  // Allocates zeroed weights and binds the parameters to them. `groups` come from backward_groups()
  // (models/architecture.h), `buffers` from buffers_of(): parameters that no optimizer updates,
  // fp32 and complete on every rank that shares them.
  ParameterBuckets(Context&, const std::vector<ParameterGroup>& groups, const BucketOptions&,
                   const Topology&, const ParameterGroup& buffers = {});

  // The buckets that an optimizer updates.
  std::span<Bucket> buckets() { return std::span(buckets_).first(updated_); }
  std::span<const Bucket> buckets() const { return std::span(buckets_).first(updated_); }
  // Those of the buffers.
  std::span<const Bucket> buffers() const { return std::span(buckets_).subspan(updated_); }
  std::span<const Bucket> with_buffers() const { return buckets_; }
  std::size_t bucket_of(const Parameter& parameter) const { return bucket_of_.at(&parameter); }
  DType dtype() const { return options_.dtype; }
  int zero_stage() const { return options_.zero_stage; }

  // Allocates master weights, for a model that is trained. They start as copies of the current
  // weights. Call it before initial values are set; otherwise the masters hold rounded values.
  void keep_masters(Context&);

  // Sets elements of a parameter, from `first` of its local shape on, from fp32 values, in the
  // weights and master weights that this rank holds.
  void set(Context&, const Parameter&, const Tensor& values, std::int64_t first = 0);
  // Copies the master weights to the weights that this rank holds, as after an update: rounded to
  // the weights' type.
  void round_masters(Context&);

  // Adds the state of this kind that this rank holds: weights, masters (where there are any) or
  // gradients.
  void append_state(StateKind kind, const Topology&, State& into) const;

 private:
  void add(Context&, BucketLayout, int zero_stage, const Topology&);

  BucketOptions options_;
  std::vector<Bucket> buckets_;
  std::size_t updated_ = 0;  // buckets; the buffers' follow
  std::map<const Parameter*, std::size_t> bucket_of_;
};

// Binds the weights of a bucket's parameters to `weights` (elements), or unbinds them where it is
// undefined.
void bind_weights(const BucketLayout&, const Tensor& weights);

}  // namespace trident

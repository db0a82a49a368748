// Sums gradients over the ranks that see other samples while backward goes on: over those that
// share a bucket, then over those that hold the same shard of it.
//
// Rounds: gradients are reduced once a step, or after every micro-batch and then added up. Where
// the sum is kept as a shard (ZeRO stages 2 and 3), and where every micro-batch is reduced,
// backward adds to whole buffers that exist from a bucket's first gradient of a round until it is
// reduced.
//
// Per element the order of additions depends on the rounds alone: by micro-batch, then by rank, in
// one round; by rank, then by micro-batch, in many. Partial gradients are summed over the groups
// that hold their parts (Placement::partial) at the end. A tied weight's two uses are added up
// apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/context.h"
#include "parallel/process_group.h"
#include "parallel/topology.h"
#include "parallel/zero/buckets.h"

namespace trident {

struct GradientOptions {
  DType dtype = DType::f32;  // in which gradients are added up and reduced
  bool overlap = true;       // reductions go on beside the stream's work; else after backward
  bool each_round = false;   // a step has several rounds
  // Of whole buffers: what holds gradients for a step is `gradient`, what only carries them to
  // their reduction `communication`.
  bool long_rounds = false;  // a round has several micro-batches
};

class GradientReduction final : public GradientMemory {
 public:
  // Allocates what is kept, and sets Bucket::gradient.
  GradientReduction(Context&, ParameterBuckets&, const Topology&, const GradientOptions&);
  ~GradientReduction() override;

  // A new step: what is kept is of the last one.
  void begin();
  // One use of `parameter` has its gradient of this round. When the bucket is complete its
  // reduction starts or, where nothing overlaps, is put off: the stage before waits for what
  // backward hands on, which would come after it.
  void ready(Context&, const Parameter& parameter, int use);
  // Makes Bucket::gradient the sum (the stream waits). All gradients of all rounds must be ready.
  void finish(Context&);

  void open(Context&, Parameter& parameter, int use) override;

 private:
  // Of a bucket and a use of its parameters.
  struct Slot {
    Tensor whole;        // (elements) what backward adds to
    Tensor sum;          // (count) reduced so far; a view of `whole` where that is kept
    bool begun = false;  // `sum` has a round of this step
    int missing = 0;     // gradients that this round still waits for
  };
  struct Reduction {
    std::size_t bucket = 0;
    int use = 0;
    Tensor whole;
    Work work;
  };

  Slot& slot(std::size_t bucket, int use) { return slots_[bucket][static_cast<std::size_t>(use)]; }
  const Bucket& bucket(std::size_t index) const { return buckets_.buckets()[index]; }
  // Every round is reduced by itself.
  bool each_round(const Bucket& bucket) const {
    return options_.each_round && bucket.reduces_gradient();
  }
  // Whole buffers are not kept.
  bool transient(const Bucket& bucket) const {
    return each_round(bucket) || (bucket.shared() && buckets_.zero_stage() >= 2);
  }
  // Tied weights: their uses are added before they are reduced.
  bool adds_uses_first(const Bucket& bucket) const {
    return bucket.layout.tied() && !each_round(bucket);
  }
  // Its reduction waits for the end of backward, with the buffer that earlier micro-batches needed
  // beside as much as is there then. One that a single micro-batch opens and fills goes at once.
  bool puts_off(const Bucket& bucket) const {
    return !options_.overlap && (!transient(bucket) || options_.long_rounds);
  }
  void bind(const Bucket&, int use, const Tensor& whole);
  void clear_stale(Context&, std::size_t bucket, int use);
  void add_uses(Context&, std::size_t bucket);
  void reduce(Context&, std::size_t bucket, int use);
  void reduce_put_off(Context&);
  void collect(Context&);  // waits for the reductions that run
  void sum_partial(Context&, const Bucket& bucket);

  ParameterBuckets& buckets_;
  Topology topology_;
  GradientOptions options_;
  std::vector<std::vector<Slot>> slots_;  // by bucket and use
  std::vector<Reduction> running_;
  std::vector<std::pair<std::size_t, int>> put_off_;  // bucket and use, as they became complete
};

}  // namespace trident

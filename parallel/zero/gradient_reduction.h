// Sums gradients over the ranks that see other samples, while backward runs: first over the ranks
// that share a bucket, then over the ranks that hold the same shard of it. It is collective over
// these ranks, in the same order on each.
//
// Gradients are reduced once a step (one round), or after every micro-batch and then added up (many
// rounds). Where the sum is kept as a shard (ZeRO stages 2 and 3), and where every micro-batch is
// reduced, backward adds to full buffers. These exist from a bucket's first gradient of a round
// until it is reduced.
//
// The order of additions per element depends on the rounds alone: by micro-batch, then by rank, in
// one round; by rank, then by micro-batch, in many. Partial gradients are summed over the groups
// that hold their parts (Placement::partial) at the end. A tied weight's uses are added up
// separately.
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
  // Of gradients, their sums and their reductions; those of parameters that keep fp32 are fp32.
  DType dtype = DType::f32;
  bool overlap = true;      // reductions overlap with the stream's work; else after backward
  bool each_round = false;  // a step has several rounds
  // A round has several micro-batches. Full buffers then hold gradients for a step (category
  // `gradient`); else they only carry gradients to their reduction (`communication`).
  bool long_rounds = false;
};

class GradientReduction final : public GradientMemory {
 public:
  // Allocates the buffers that are kept, and sets Bucket::gradient. Throws Error where a parameter
  // has another number of uses than its bucket.
  GradientReduction(Context&, ParameterBuckets&, const Topology&, const GradientOptions&);
  ~GradientReduction() override;

  // Starts a step: kept buffers still hold the last step's gradients, and become stale.
  void begin();
  // Reports that one use of `parameter` has its gradient of this round. When the bucket is
  // complete, its reduction starts, or is postponed where nothing overlaps: the stage before waits
  // for the gradient that backward sends, which would come after the reduction. Throws Error where
  // a gradient is ready twice.
  void ready(Context&, const Parameter& parameter, int use);
  // Makes Bucket::gradient the sum (the stream waits). Throws Error unless all gradients of all
  // rounds are ready.
  void finish(Context&);

  void open(Context&, Parameter& parameter, int use) override;

 private:
  DType dtype_of(const Bucket& bucket) const {
    return bucket.layout.keeps_fp32 ? DType::f32 : options_.dtype;
  }
  // The buffers of a bucket and a use of its parameters.
  struct Slot {
    Tensor full;         // (elements) backward adds to it
    Tensor sum;          // (count) reduced so far; a view of `full` where that is kept
    bool begun = false;  // `sum` holds a round of this step
    int missing = 0;     // gradients that this round still waits for
  };
  struct Reduction {
    std::size_t bucket = 0;
    int use = 0;
    Tensor full;
    Work work;
  };

  Slot& slot(std::size_t bucket, int use) { return slots_[bucket][static_cast<std::size_t>(use)]; }
  const Bucket& bucket(std::size_t index) const { return buckets_.buckets()[index]; }
  // Whether every round is reduced by itself. The gradients of experts that only this rank holds
  // are added up in the same order, so that their bits don't depend on the number of holders.
  bool each_round(const Bucket& bucket) const {
    return options_.each_round && (bucket.reduces_gradient() || bucket.layout.data.are_of_expert());
  }
  // Whether full buffers are freed after their reduction.
  bool transient(const Bucket& bucket) const {
    return each_round(bucket) || (bucket.shared() && buckets_.zero_stage() >= 2);
  }
  // Whether the uses of a tied weight are added before they are reduced.
  bool adds_uses_first(const Bucket& bucket) const {
    return bucket.layout.tied() && !each_round(bucket);
  }
  // Whether its reduction is postponed to the end of backward, and its full buffer is kept so long.
  // That doesn't raise the peak of memory where earlier micro-batches held this buffer together
  // with as much other memory. A buffer that a single micro-batch opens and fills is reduced at
  // once.
  bool postpones(const Bucket& bucket) const {
    return !options_.overlap && (!transient(bucket) || options_.long_rounds);
  }
  void bind(const Bucket&, int use, const Tensor& full);
  void clear_stale(Context&, std::size_t bucket, int use);
  void add_uses(Context&, std::size_t bucket);
  void reduce(Context&, std::size_t bucket, int use);
  void reduce_postponed(Context&);
  void collect(Context&);  // waits for the running reductions
  void sum_partial(Context&, const Bucket& bucket);

  ParameterBuckets& buckets_;
  Topology topology_;
  GradientOptions options_;
  std::vector<std::vector<Slot>> slots_;  // by bucket and use
  std::vector<Reduction> running_;
  std::vector<std::pair<std::size_t, int>> postponed_;  // bucket and use, in order of completion
};

}  // namespace trident

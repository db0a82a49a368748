// The flat buffers behind a rank's parameters, and the reduction of gradients over the
// data-parallel group while backward goes on.
//
// ZeRO (Rajbhandari 2019): stage 0 all-reduces each bucket; stage 1 reduce-scatters it, so that
// only this rank's shard of it holds the sum, and all-gathers the weights after the update. Stages
// 2 and 3 will keep less of the gradients and weights behind the same interface.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/context.h"
#include "parallel/data/bucket_layout.h"
#include "parallel/parameter.h"
#include "parallel/process_group.h"
#include "parallel/tensor/linear.h"

namespace trident {

struct BucketOptions {
  DType dtype = DType::f32;  // of the weights; gradients and master weights are fp32
  int zero_stage = 0;
  std::int64_t bucket_elements = 5'000'000;
  bool overlap = true;
  bool gradients = true;  // false: weights only, for inference
};

// One bucket's memory. `elements` as in the layout, S = elements / data-parallel size.
struct Bucket {
  BucketLayout layout;
  Tensor weights;    // (elements) of the compute dtype
  Tensor gradients;  // (elements) fp32
  // What the optimizer updates: the whole bucket (stage 0) or this rank's shard (stage 1).
  std::int64_t begin = 0, count = 0;
  Tensor master;  // (count) fp32; the weights themselves where they are fp32
};

class ParameterBuckets {
 public:
  // `parameters` in the order in which backward completes their gradients. Allocates zeroed buffers
  // and binds the parameters to them.
  ParameterBuckets(Context&, const std::vector<std::shared_ptr<Parameter>>& parameters,
                   ProcessGroup data, TensorParallel tensor, ProcessGroup embedding,
                   const BucketOptions&);

  std::vector<Bucket>& buckets() { return buckets_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }

  // Sets a parameter from fp32 values of its local shape: weights, and master weights held here.
  void set(Context&, const Parameter&, const Tensor& values);

  // A new step: the first gradient of each parameter takes the place of the last step's.
  void begin_gradients();
  // One use of `parameter` has added the gradients of all micro-batches of this step: sums it over
  // the tensor group where it is partial and starts the bucket's reduction when the bucket is
  // complete.
  void gradient_ready(Context&, const Parameter& parameter);
  // Sums tied gradients over their uses, reduces what is left and makes the stream wait for all.
  // Every gradient must be ready.
  void finish_gradients(Context&);
  // After the update: every rank of the data group gets all weights again (stage 1).
  void gather_weights(Context&);
  // Makes whole gradients of the reduced shards (stage 1), for dumps. Collective.
  void gather_gradients(Context&);

 private:
  void reduce(Context&, std::size_t bucket);

  ProcessGroup data_;
  TensorParallel tensor_;
  ProcessGroup embedding_;
  BucketOptions options_;
  std::vector<Bucket> buckets_;
  std::map<const Parameter*, std::size_t> bucket_of_;
  std::vector<int> missing_;  // gradients that each bucket still waits for
  std::vector<Work> pending_;
};

}  // namespace trident

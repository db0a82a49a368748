#include "parallel/data/buckets.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/elementwise.h"

namespace trident {

ParameterBuckets::ParameterBuckets(Context& context,
                                   const std::vector<std::shared_ptr<Parameter>>& parameters,
                                   ProcessGroup data, TensorParallel tensor, ProcessGroup embedding,
                                   const BucketOptions& options)
    : data_(std::move(data)),
      tensor_(std::move(tensor)),
      embedding_(std::move(embedding)),
      options_(options) {
  const int parts = data_.size();
  for (BucketLayout& layout : layout_buckets(parameters, options.bucket_elements, parts)) {
    Bucket bucket;
    bucket.weights = context.empty({layout.elements}, options.dtype, Category::parameter);
    if (options.gradients) {
      bucket.gradients = context.empty({layout.elements}, DType::f32, Category::gradient);
    }
    fill(context, bucket.weights, 0);
    const bool sharded = options.zero_stage >= 1;
    bucket.begin = sharded ? data_.rank() * layout.shard(parts) : 0;
    bucket.count = sharded ? layout.shard(parts) : layout.elements;
    if (options.dtype == DType::f32) {
      bucket.master = bucket.weights.flat(bucket.begin, bucket.count);
    } else {
      bucket.master = context.empty({bucket.count}, DType::f32, Category::optimizer);
      fill(context, bucket.master, 0);
    }
    for (const BucketEntry& entry : layout.entries) {
      Parameter& parameter = *entry.parameter;
      const Shape local = parameter.spec().shard.local();
      Tensor gradient, second;
      if (options.gradients)
        gradient = bucket.gradients.flat(entry.offset, entry.numel).view(local);
      if (options.gradients && parameter.uses() > 1)
        second = context.empty(local, DType::f32, Category::gradient);
      parameter.bind(bucket.weights.flat(entry.offset, entry.numel).view(local), gradient, second);
      bucket_of_[&parameter] = buckets_.size();
    }
    bucket.layout = std::move(layout);
    buckets_.push_back(std::move(bucket));
  }
}

void ParameterBuckets::set(Context& context, const Parameter& parameter, const Tensor& values) {
  copy(context, values, parameter.weight());
  const Bucket& bucket = buckets_[bucket_of_.at(&parameter)];
  if (options_.dtype == DType::f32) return;
  for (const BucketEntry& entry : bucket.layout.entries) {
    if (entry.parameter.get() != &parameter) continue;
    const std::int64_t from = std::max(bucket.begin, entry.offset);
    const std::int64_t to = std::min(bucket.begin + bucket.count, entry.offset + entry.numel);
    if (from >= to) continue;
    copy(context, values.flat(from - entry.offset, to - from),
         bucket.master.flat(from - bucket.begin, to - from));
  }
}

void ParameterBuckets::begin_gradients() {
  missing_.clear();
  for (const Bucket& bucket : buckets_) {
    missing_.push_back(0);
    for (const BucketEntry& entry : bucket.layout.entries) {
      missing_.back() += entry.parameter->uses();
      entry.parameter->begin_gradients();
    }
  }
}

void ParameterBuckets::gradient_ready(Context& context, const Parameter& parameter) {
  if (parameter.spec().gradient_partial_over_tensor && tensor_.size > 1) {
    tensor_.group.all_reduce(context, parameter.gradient(0));
  }
  const std::size_t index = bucket_of_.at(&parameter);
  if (--missing_[index] == 0 && !parameter.spec().tied) reduce(context, index);
}

void ParameterBuckets::finish_gradients(Context& context) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (missing_[i] != 0) {
      throw Error("ParameterBuckets: " + std::to_string(missing_[i]) + " gradients of bucket " +
                  std::to_string(i) + " are not ready, first " +
                  buckets_[i].layout.entries.front().parameter->name());
    }
    const Parameter& parameter = *buckets_[i].layout.entries.front().parameter;
    if (!parameter.spec().tied) continue;
    if (parameter.uses() > 1) {
      add(context, parameter.gradient(1), parameter.gradient(0));
    } else if (embedding_.defined() && embedding_.size() > 1) {
      embedding_.all_reduce(context, parameter.gradient(0));
    }
    reduce(context, i);
  }
  for (const Work& work : pending_) work.wait(context);
  pending_.clear();
}

void ParameterBuckets::reduce(Context& context, std::size_t index) {
  if (data_.size() == 1) return;
  const Bucket& bucket = buckets_[index];
  const Async async = options_.overlap ? Async::yes : Async::no;
  if (options_.zero_stage == 0) {
    pending_.push_back(data_.all_reduce(context, bucket.gradients, ReduceOp::sum, async));
  } else {
    pending_.push_back(data_.reduce_scatter(context, bucket.gradients,
                                            bucket.gradients.flat(bucket.begin, bucket.count),
                                            ReduceOp::sum, async));
  }
}

void ParameterBuckets::gather_weights(Context& context) {
  if (options_.zero_stage == 0 || data_.size() == 1) return;
  const Async async = options_.overlap ? Async::yes : Async::no;
  for (const Bucket& bucket : buckets_) {
    pending_.push_back(data_.all_gather(context, bucket.weights.flat(bucket.begin, bucket.count),
                                        bucket.weights, async));
  }
  for (const Work& work : pending_) work.wait(context);
  pending_.clear();
}

void ParameterBuckets::gather_gradients(Context& context) {
  if (options_.zero_stage == 0 || data_.size() == 1) return;
  for (const Bucket& bucket : buckets_) {
    data_.all_gather(context, bucket.gradients.flat(bucket.begin, bucket.count), bucket.gradients);
  }
}

}  // namespace trident

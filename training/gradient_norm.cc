#include "training/gradient_norm.h"

#include <span>
#include <vector>

#include "kernels/elementwise.h"

namespace trident {

ExactSum gradient_squares(Context& context, const ParameterBuckets& buckets,
                          const ProcessGroup& data, int tensor_rank) {
  ExactSum sum;
  for (const Bucket& bucket : buckets.buckets()) {
    // A bucket at a time, so that the blocks' sums take little memory.
    std::vector<std::pair<Tensor, std::vector<double>>> blocks;  // their sums, there and here
    const std::int64_t shard = bucket.layout.shard(data.size());
    for (const ParameterSegment& segment : segments(bucket.layout, data.rank() * shard, shard)) {
      const ParameterSpec& spec = segment.parameter->spec();
      if (spec.replica || (!spec.shard.sharded() && tensor_rank != 0)) continue;
      const std::int64_t count = (segment.count + bucket_block - 1) / bucket_block;
      const Tensor sums = context.empty({count}, DType::f64, Category::workspace);
      square_sums(context, bucket.gradient.flat(segment.begin - bucket.begin, segment.count),
                  bucket_block, sums);
      if (context.plans()) continue;
      blocks.emplace_back(sums, std::vector<double>(static_cast<std::size_t>(count)));
    }
    for (auto& [sums, values] : blocks) {
      context.copy_to_host(std::as_writable_bytes(std::span(values)), sums);
    }
    context.synchronize();
    for (const auto& [sums, values] : blocks) {
      for (const double value : values) sum.add(value);
    }
  }
  return sum;
}

}  // namespace trident

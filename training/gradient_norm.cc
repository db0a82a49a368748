#include "training/gradient_norm.h"

#include <span>
#include <vector>

#include "kernels/elementwise.h"

namespace trident {

ExactSum gradient_squares(Context& context, const ParameterBuckets& buckets,
                          const ProcessGroup& data, int tensor_rank) {
  std::vector<std::vector<double>> blocks;
  std::vector<std::pair<Tensor, Tensor>> work;  // gradient range, its blocks' sums
  for (const Bucket& bucket : buckets.buckets()) {
    const std::int64_t shard = bucket.layout.shard(data.size());
    for (const ParameterSegment& segment : segments(bucket.layout, data.rank() * shard, shard)) {
      const ParameterSpec& spec = segment.parameter->spec();
      if (spec.replica || (!spec.shard.sharded() && tensor_rank != 0)) continue;
      const std::int64_t count = (segment.count + bucket_block - 1) / bucket_block;
      work.emplace_back(bucket.gradient.flat(segment.begin - bucket.begin, segment.count),
                        context.empty({count}, DType::f64, Category::workspace));
      square_sums(context, work.back().first, bucket_block, work.back().second);
      blocks.emplace_back(static_cast<std::size_t>(count));
    }
  }
  for (std::size_t i = 0; i < work.size(); ++i) {
    context.copy_to_host(std::as_writable_bytes(std::span(blocks[i])), work[i].second);
  }
  context.synchronize();
  ExactSum sum;
  for (const auto& values : blocks) {
    for (const double value : values) sum.add(value);
  }
  return sum;
}

}  // namespace trident

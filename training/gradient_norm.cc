#include "training/gradient_norm.h"

#include <cmath>
#include <span>
#include <vector>

#include "core/exact_sum.h"
#include "kernels/elementwise.h"

namespace trident {

double global_gradient_norm(Context& context, const ParameterBuckets& buckets,
                            const ProcessGroup& world, const ProcessGroup& data, int tensor_rank) {
  std::vector<std::vector<double>> blocks;
  std::vector<std::pair<Tensor, Tensor>> work;  // gradient range, its blocks' sums
  for (const Bucket& bucket : buckets.buckets()) {
    const std::int64_t shard = bucket.layout.shard(data.size());
    for (const ParameterSegment& segment : segments(bucket.layout, data.rank() * shard, shard)) {
      const ParameterSpec& spec = segment.parameter->spec();
      if (spec.replica || (!spec.shard.sharded() && tensor_rank != 0)) continue;
      const std::int64_t count = (segment.count + bucket_block - 1) / bucket_block;
      work.emplace_back(bucket.gradients.flat(segment.begin, segment.count),
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
  const auto state = sum.state();
  const Tensor shared = context.from_host(
      Shape{ExactSum::limbs + 1}, std::span<const std::int64_t>(state), Category::workspace);
  world.all_reduce(context, shared);
  const std::vector<std::int64_t> total = context.to_host<std::int64_t>(shared);
  return std::sqrt(
      ExactSum::from_state(std::span<const std::int64_t, ExactSum::limbs + 1>(total)).value());
}

}  // namespace trident

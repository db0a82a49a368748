#include "training/gradient_norm.h"

#include "core/exact_sum.h"
#include "kernels/elementwise.h"

namespace trident {

Tensor gradient_squares(Context& context, const ParameterBuckets& buckets, const ProcessGroup& data,
                        int tensor_rank) {
  Tensor sum = context.empty({ExactSum::limbs + 1}, DType::i64, Category::workspace);
  fill(context, sum, 0);
  for (const Bucket& bucket : buckets.buckets()) {
    const std::int64_t shard = bucket.layout.shard(data.size());
    for (const ParameterSegment& segment : segments(bucket.layout, data.rank() * shard, shard)) {
      const ParameterSpec& spec = segment.parameter->spec();
      if (spec.replica || (!spec.shard.sharded() && tensor_rank != 0)) continue;
      const std::int64_t count = (segment.count + bucket_block - 1) / bucket_block;
      if (count == 0) continue;
      const Tensor squares = context.empty({count}, DType::f64, Category::workspace);
      square_sums(context, bucket.gradient.flat(segment.begin - bucket.begin, segment.count),
                  bucket_block, squares);
      exact_sum(context, squares, sum);
    }
  }
  return sum;
}

}  // namespace trident

#include "engine/finite_weights.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/elementwise.h"

namespace trident {

bool weights_are_finite(RankModel& model) {
  Context& context = model.context();
  std::int64_t broken = 0;
  for (const Bucket& bucket : model.buckets().with_buffers()) {
    const std::int64_t count = bucket.shard.numel();
    if (count == 0) continue;
    // Squares of weights don't overflow fp64, so a sum is finite if and only if all its terms are.
    const Tensor sums =
        context.empty({(count + bucket_block - 1) / bucket_block}, DType::f64, Category::workspace);
    square_sums(context, bucket.shard, bucket_block, sums);
    const auto values = context.to_host<double>(sums);
    broken += std::ranges::count_if(values, [](double value) { return !std::isfinite(value); });
  }
  const Tensor all = context.from_host<std::int64_t>({1}, std::span<const std::int64_t>(&broken, 1),
                                                     Category::workspace);
  model.topology().world.all_reduce(context, all);
  return context.to_host<std::int64_t>(all).front() == 0;
}

}  // namespace trident

#include "training/report/product_rate.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace trident {

double product_rate(Context& context, DType dtype, ProductShape shape, double seconds) {
  const Tensor a = context.empty({shape.m, shape.k}, dtype, Category::workspace);
  const Tensor b = context.empty({shape.n, shape.k}, dtype, Category::workspace);
  const Tensor c = context.empty({shape.m, shape.n}, dtype, Category::workspace);
  // Random, as equal values make a GPU faster.
  for (const Tensor& x : {a, b}) {
    fill_normal(context, {.x = x, .key = 1, .global_rows = x.dim(0), .global_columns = x.dim(1)});
  }
  const double flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.k) *
                       static_cast<double>(shape.n);
  const auto run = [&] {
    ClockReading begin, end;
    context.mark(begin);
    gemm(context, {.a = a, .b = b, .c = c, .transpose_b = true});
    context.mark(end);
    context.synchronize();
    return static_cast<double>(end.wall_ns - begin.wall_ns) * 1e-9;
  };
  run();  // makes the primitive
  double best = run();
  for (double total = best; total < seconds;) {
    const double time = run();
    best = std::min(best, time);
    total += time;
  }
  return flops / best;
}

ProductShape usual_product(Context& context, DType dtype) {
  if (context.device().kind() != DeviceKind::cuda) return {};
  std::int64_t n = 512;
  for (; n < 8192; n *= 2) {
    const auto flops = 2.0 * static_cast<double>(n) * static_cast<double>(n * n);
    if (flops / product_rate(context, dtype, {n, n, n}, 0) > 2e-3) break;
  }
  return {.m = n, .k = n, .n = n};
}

}  // namespace trident

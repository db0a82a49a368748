#include "report/product_rate.h"

#include <algorithm>

#include "base/median.h"
#include "core/clock.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace trident {

namespace {

// Random values, because equal values make a GPU faster: some rows, over and over, as drawing takes
// longer than a product.
void fill_random(Context& context, const Tensor& x) {
  const std::int64_t rows = x.dim(0), drawn = std::min<std::int64_t>(rows, 64);
  const Tensor first = x.rows(0, drawn);
  fill_normal(context, {.x = first, .key = 1, .global_rows = drawn, .global_columns = x.dim(1)});
  for (std::int64_t row = drawn; row < rows; row += drawn) {
    const std::int64_t count = std::min(drawn, rows - row);
    copy(context, first.rows(0, count), x.rows(row, count));
  }
}

}  // namespace

std::vector<double> product_rates(Context& context, DType dtype, ProductShape shape,
                                  double seconds) {
  const Tensor a = context.empty({shape.m, shape.k}, dtype, Category::workspace);
  const Tensor b = context.empty({shape.n, shape.k}, dtype, Category::workspace);
  const Tensor c = context.empty({shape.m, shape.n}, dtype, Category::workspace);
  for (const Tensor& x : {a, b}) fill_random(context, x);
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
  run();  // creates the primitive
  std::vector<double> rates;
  for (double total = 0; rates.empty() || total < seconds;) {
    const double time = run();
    rates.push_back(flops / time);
    total += time;
  }
  return rates;
}

double product_rate(Context& context, DType dtype, ProductShape shape, double seconds) {
  return std::ranges::max(product_rates(context, dtype, shape, seconds));
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

MeasuredRate measure_rate(Context& context, DType dtype, double known) {
  constexpr double round = 0.2, first = 1.0, most = 3.0;  // seconds
  constexpr double faster = 1.02;
  const ProductShape shape = usual_product(context, dtype);
  const double least = known > 0 ? round : first;
  const ClockReading begin = read_clock();
  std::vector<double> rates;
  double best = 0;
  for (;;) {
    const double before = std::max(known, best);
    for (const double rate : product_rates(context, dtype, shape, round)) {
      rates.push_back(rate);
      best = std::max(best, rate);
    }
    const double elapsed = 1e-9 * static_cast<double>(read_clock().wall_ns - begin.wall_ns);
    const bool rises = best > faster * before;
    if (elapsed >= (rises ? most : least)) break;
  }
  return {best, median(rates)};
}

}  // namespace trident

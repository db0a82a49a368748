#include "kernels/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "kernels/attention_check.h"
#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {

RotaryFrequencies linear_frequencies(float base, double factor) {
  return {.base = base, .factor = factor, .shift = 1};
}

RotaryFrequencies llama3_frequencies(float base, double factor, double low, double high,
                                     double original) {
  return {.base = base,
          .factor = factor,
          .slope = -1 / (high - low),
          .shift = high / (high - low),
          .turns = original / (2 * std::numbers::pi)};
}

RotaryFrequencies yarn_frequencies(float base, std::int64_t head_dim, const YarnScaling& yarn) {
  const auto dim = static_cast<double>(head_dim);
  // The pair that turns `turns` times in the original positions.
  const auto pair = [&](double turns) {
    return dim * std::log(yarn.original / (2 * std::numbers::pi * turns)) /
           (2 * std::log(static_cast<double>(base)));
  };
  double low = pair(yarn.beta_fast), high = pair(yarn.beta_slow);
  if (yarn.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  return {.base = base,
          .factor = yarn.factor,
          .slope = 1 / (high - low),
          .shift = -low / (high - low),
          .amplitude = static_cast<float>(yarn.amplitude)};
}

std::vector<float> frequency_divisors(const RotaryFrequencies& f, std::int64_t head_dim) {
  std::vector<float> divisors;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    divisors.push_back(static_cast<float>(f.plain(i, head_dim) / f.of(i, head_dim)));
  }
  return divisors;
}

double RotaryFrequencies::plain(std::int64_t pair, std::int64_t head_dim) const {
  return std::pow(static_cast<double>(base),
                  -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
}

double RotaryFrequencies::of(std::int64_t pair, std::int64_t head_dim) const {
  return scaled(plain(pair, head_dim), static_cast<double>(pair));
}

RotaryArgs rotary_of(const AttentionShape& shape, const Tensor& qkv) {
  return {.batch = shape.batch,
          .sequence = shape.sequence,
          .heads = shape.heads + shape.groups,
          .head_dim = shape.head_dim,
          .x = {qkv, 0}};
}

void rotary(Context& context, const RotaryArgs& args) {
  const Check check("rotary");
  check.that(args.batch >= 0 && args.sequence > 0 && args.heads > 0,
             "sequence " + std::to_string(args.sequence) + ", heads " + std::to_string(args.heads),
             "at least 1");
  check.that(args.head_dim > 0 && args.head_dim % 2 == 0,
             "head_dim " + std::to_string(args.head_dim), "an even number");
  check.compute_dtype(args.x.rows, "x");
  check.that(args.head_stride() >= args.head_dim, "stride " + std::to_string(args.stride),
             "at least head_dim " + std::to_string(args.head_dim));
  // Of the last head only its own elements.
  check_heads(check, args.x, "x", args.x.rows.dtype(), args.batch * args.sequence, 1,
              (args.heads - 1) * args.head_stride() + args.head_dim);
  check.that(args.begin >= 0 && args.begin + args.sequence <= args.tabulated(),
             "positions " + std::to_string(args.begin) + " to " +
                 std::to_string(args.begin + args.sequence),
             "up to " + std::to_string(args.tabulated()));
  if (args.row_positions) {
    check.dtype(args.row_positions, "row_positions", DType::i32);
    check.shape(args.row_positions, "row_positions", {args.batch * args.sequence});
  }
  launch(context, &Backend::rotary, args);
}

}  // namespace trident

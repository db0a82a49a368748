#include "models/output_layer.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace trident {

std::int64_t logit_rows(const TransformerShape& shape, std::int64_t rows, std::int64_t columns) {
  const auto round_up = [](std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; };
  const std::int64_t row = columns * static_cast<std::int64_t>(size_of(shape.dtype));
  std::int64_t most = std::max<std::int64_t>(shape.logit_bytes / row, 1);
  // Aligns the parts to a matrix product's tiles, where that makes them only a little smaller.
  const std::int64_t tile = std::bit_floor(std::clamp<std::uint64_t>(most / 8, 1, 256));
  most -= most % tile;
  if (rows <= most) return std::max<std::int64_t>(rows, 1);
  const std::int64_t parts = (rows + most - 1) / most;
  return round_up((rows + parts - 1) / parts, tile);
}

Weight output_table(const ParallelContext& parallel, const TransformerShape& shape) {
  return parallel
      .linear({.name = "output",
               .role = LinearRole::vocabulary,
               .in = shape.hidden,
               .out = {shape.vocabulary},
               .padded = shape.padded_vocabulary,
               .init_deviation = shape.init_deviation})
      .weight();
}

OutputLayer::OutputLayer(const ParallelContext& parallel, const TransformerShape& shape,
                         Weight table)
    : shape_(shape),
      projection_(parallel, LinearRole::vocabulary, std::move(table)),
      loss_(parallel, shape.vocabulary, shape.padded_vocabulary, shape.label_smoothing) {}

Tensor OutputLayer::logits(Context& context, WeightVersion version, const Tensor& y) const {
  LinearActivations unused;
  return projection_.forward(context, version, y, unused);
}

void OutputLayer::run(Context& context, WeightVersion version, const Tensor& y,
                      const Tensor& labels, const Tensor& losses, std::optional<float> scale,
                      const Tensor& gradient) const {
  const std::int64_t rows = y.dim(0);
  const std::int64_t step = logit_rows(shape_, rows, projection_.weight().dim(0));
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    const Tensor part = y.rows(row, count);
    const Tensor g = logits(context, version, part);  // loss_.run makes it the gradient
    loss_.run(context, g, labels.rows(row, count), losses.rows(row, count), scale);
    if (!scale) continue;
    projection_.backward(context, version, g, part, gradient.rows(row, count));
  }
}

}  // namespace trident

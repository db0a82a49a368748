#include "models/output_layer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/gemm.h"

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

std::shared_ptr<Parameter> output_table(const ParallelContext& parallel,
                                        const TransformerShape& shape) {
  return std::make_shared<Parameter>(ParameterSpec{
      .name = "output.weight",
      .placement = parallel.sharded({shape.vocabulary, shape.hidden}, 0, shape.padded_vocabulary),
      .initial = Initial::normal(shape.init_deviation),
      .role = ParameterRole::head});
}

OutputLayer::OutputLayer(const ParallelContext& parallel, const TransformerShape& shape,
                         Weight table)
    : shape_(shape),
      table_(std::move(table)),
      loss_(parallel, shape.vocabulary, shape.padded_vocabulary, shape.label_smoothing) {}

Tensor OutputLayer::product(Context& context, const Tensor& y, const Tensor& table) const {
  Tensor logits = context.empty({y.dim(0), table.dim(0)}, y.dtype(), Category::activation);
  gemm(context, {.a = y, .b = table, .c = logits, .transpose_b = true});
  return logits;
}

Tensor OutputLayer::logits(Context& context, WeightVersion version, const Tensor& y) const {
  return product(context, y, table_.acquire(version).tensor());
}

void OutputLayer::run(Context& context, WeightVersion version, const Tensor& y,
                      const Tensor& labels, const Tensor& losses, std::optional<float> scale,
                      const Tensor& gradient) const {
  const WeightView table = table_.acquire(version);
  const std::int64_t rows = y.dim(0), step = logit_rows(shape_, rows, table_.dim(0));
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    const Tensor part = y.rows(row, count);
    const Tensor g = product(context, part, table.tensor());  // loss_.run makes it the gradient
    loss_.run(context, g, labels.rows(row, count), losses.rows(row, count), scale);
    if (!scale) continue;
    gemm(context, {.a = g, .b = table.tensor(), .c = gradient.rows(row, count)});
    table_.add_product(context, g, part);
  }
}

}  // namespace trident

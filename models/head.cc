#include "models/head.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/gemm.h"

namespace trident {
namespace {
struct HeadActivations final : SavedActivations {
  NormActivations norm;
  Tensor gradient;  // of the norm's output, (T, H), this rank's addend of the sum
};
}  // namespace

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

LanguageModelHead::LanguageModelHead(const ParallelContext& parallel, const TransformerShape& shape,
                                     Weight table)
    : norm_(parallel, "final_norm", shape.hidden, shape.norm_epsilon, shape.layer_norm),
      table_(table),
      parallel_(parallel),
      shape_(shape),
      loss_(parallel, shape.vocabulary, shape.padded_vocabulary, shape.label_smoothing) {}

std::vector<std::shared_ptr<Parameter>> LanguageModelHead::parameters() const {
  auto list = backward_parameters();
  list.push_back(table_.parameter());
  return list;
}

std::vector<std::shared_ptr<Parameter>> LanguageModelHead::backward_parameters() const {
  std::vector<std::shared_ptr<Parameter>> list;
  norm_.collect(list);
  return list;
}

std::vector<std::shared_ptr<Parameter>> LanguageModelHead::forward_gradients() const {
  return {table_.parameter()};
}

Tensor LanguageModelHead::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                                  SavedActivationsPtr& kept) const {
  auto saved = std::make_unique<HeadActivations>();
  const Tensor y =
      parallel_.gather_rows(context, norm_.forward(context, batch.version, x, saved->norm));
  const WeightView table = table_.acquire(batch.version);
  const std::int64_t rows = y.dim(0), columns = table_.dim(0);
  const auto logits_of = [&](const Tensor& part) {
    Tensor logits = context.empty({part.dim(0), columns}, y.dtype(), Category::activation);
    gemm(context, {.a = part, .b = table.tensor(), .c = logits, .transpose_b = true});
    return logits;
  };
  Tensor result;
  if (!batch.labels) {
    const std::int64_t wanted = batch.logit_rows > 0 ? batch.logit_rows : rows;
    result = logits_of(y.rows(rows - wanted, wanted));
  } else {
    result = context.empty({rows}, DType::f32, Category::activation);
    if (batch.training) {
      saved->gradient = context.empty(y.shape(), y.dtype(), Category::activation);
    }
    const std::int64_t step = logit_rows(shape_, rows, columns);
    for (std::int64_t row = 0; row < rows; row += step) {
      const std::int64_t count = std::min(step, rows - row);
      const Tensor part = y.rows(row, count);
      const Tensor g = logits_of(part);  // loss_.run replaces them by their gradient
      loss_.run(context, g, batch.labels.rows(row, count), result.rows(row, count),
                batch.training ? std::optional(batch.loss_scale) : std::nullopt);
      if (!batch.training) continue;
      gemm(context, {.a = g, .b = table.tensor(), .c = saved->gradient.rows(row, count)});
      table_.add_product(context, g, part);
    }
  }
  kept = std::move(saved);
  return result;
}

Tensor LanguageModelHead::backward_input(Context& context, const MicroBatch& batch, const Tensor&,
                                         SavedActivationsPtr& kept) const {
  auto& saved = static_cast<HeadActivations&>(*kept);
  const Tensor g = parallel_.reduce_partial_sums(context, std::exchange(saved.gradient, Tensor()));
  return norm_.backward_input(context, batch.version, g, {}, saved.norm);
}

void LanguageModelHead::backward_weight(Context& context, const MicroBatch&,
                                        SavedActivationsPtr& kept) const {
  norm_.backward_weight(context, static_cast<HeadActivations&>(*kept).norm);
  kept.reset();
}

}  // namespace trident

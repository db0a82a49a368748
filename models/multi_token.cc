#include "models/multi_token.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/elementwise.h"
#include "kernels/heads.h"
#include "models/recomputed.h"

namespace trident {

struct MultiTokenLayer::Saved final : SavedActivations {
  Tensor tokens;  // (T) i32
  NormActivations embedding_norm, hidden_norm, norm;
  LinearActivations projection;
  SavedActivationsPtr block;
  Tensor gradient;            // of the norm's output, (T, H), this rank's addend of the sum
  Tensor embedding_gradient;  // (T or T/t, H), from backward_input until backward_weight
};

namespace {

constexpr const char* loss_name = "mtp_loss";

std::string name_of(const TransformerShape& shape, std::int64_t depth) {
  return fmt::format("layers.{}", shape.layers + depth - 1);
}

Norm norm(const ParallelContext& parallel, const TransformerShape& shape, const std::string& name) {
  return {parallel, name, shape.hidden, shape.norm_epsilon, shape.layer_norm};
}

// Half of the columns of `pair` (T, 2H) and `one` (T, H), in either direction.
HeadPartsArgs half(const Tensor& one, const Tensor& pair, bool second) {
  const std::int64_t hidden = one.dim(1);
  return {.heads = 1, .dim = hidden, .from = {one}, .to = {pair, second ? hidden : 0}};
}

}  // namespace

MultiTokenLayer::MultiTokenLayer(const ParallelContext& parallel, const TransformerShape& shape,
                                 std::int64_t depth, OutputLayer output, Weight embedding,
                                 std::unique_ptr<Module> block)
    : parallel_(parallel),
      depth_(depth),
      layer_(shape.layers + depth - 1),
      dtype_(shape.dtype),
      factor_(shape.mtp_loss / static_cast<float>(shape.mtp_layers)),
      embedding_norm_(norm(parallel, shape, name_of(shape, depth) + ".enorm")),
      hidden_norm_(norm(parallel, shape, name_of(shape, depth) + ".hnorm")),
      projection_(parallel.linear({.name = name_of(shape, depth) + ".eh_proj",
                                   .role = LinearRole::replicated,
                                   .in = 2 * shape.hidden,
                                   .out = {shape.hidden},
                                   .init_deviation = shape.init_deviation})),
      block_(shape.recompute_further ? std::make_unique<Recomputed>(std::move(block))
                                     : std::move(block)),
      norm_(norm(parallel, shape, name_of(shape, depth) + ".shared_head_norm")),
      output_(std::move(output)),
      lookup_(parallel, std::move(embedding), shape.padding_token) {}

std::vector<Statistic> MultiTokenLayer::statistics(const TransformerShape& shape) {
  std::vector<Statistic> list;
  for (std::int64_t i = 0; i < shape.mtp_layers; ++i) {
    list.push_back({loss_name, StatisticKind::auxiliary_loss, shape.layers + i});
  }
  return list;
}

std::vector<std::shared_ptr<Parameter>> MultiTokenLayer::parameters() const {
  return with_own(block_->parameters());
}

std::vector<std::shared_ptr<Parameter>> MultiTokenLayer::backward_parameters() const {
  return with_own(block_->backward_parameters());
}

std::vector<std::shared_ptr<Parameter>> MultiTokenLayer::forward_gradients() const {
  return block_->forward_gradients();
}

std::vector<std::shared_ptr<Parameter>> MultiTokenLayer::buffers() const {
  return block_->buffers();
}

std::vector<std::shared_ptr<Parameter>> MultiTokenLayer::with_own(
    std::vector<std::shared_ptr<Parameter>> of_block) const {
  std::vector<std::shared_ptr<Parameter>> list;
  embedding_norm_.collect(list);
  hidden_norm_.collect(list);
  projection_.collect(list);
  for (auto& parameter : of_block) list.push_back(std::move(parameter));
  norm_.collect(list);
  return list;
}

// The label of a position is the token one ahead.
Tensor MultiTokenLayer::tokens(Context& context, const MicroBatch& batch) const {
  if (!batch.further.empty()) return batch.further.at(static_cast<std::size_t>(depth_ - 1)).tokens;
  if (depth_ == 1) return batch.labels;
  Tensor ids = context.empty(batch.labels.shape(), DType::i32, Category::activation);
  copy(context, batch.labels, ids);
  const std::int64_t known = batch.sequence - depth_ + 1;
  for (std::int64_t row = 0; row < ids.dim(0); row += batch.sequence) {
    copy(context, batch.labels.rows(row + depth_ - 1, known), ids.rows(row, known));
  }
  return ids;
}

void MultiTokenLayer::run_output(Context& context, const MicroBatch& batch, const Tensor& h,
                                 Saved& saved) const {
  const Tensor y = parallel_.gather_rows(context, h);
  saved.gradient = context.empty(y.shape(), y.dtype(), Category::activation);
  const auto run = [&](std::int64_t row, std::int64_t count, const Tensor& labels,
                       const Tensor& losses) {
    output_.run(context, batch.version, y.rows(row, count), labels, losses,
                batch.loss_scale * factor_, saved.gradient.rows(row, count));
    if (!batch.statistics.is_recording() || !parallel_.counts_rows(1, 1)) return;
    scale(context, losses, factor_);
    batch.statistics.add(context, loss_name, layer_, losses);
  };
  if (!batch.further.empty()) {
    const std::int64_t rows = y.dim(0);
    return run(0, rows, batch.further.at(static_cast<std::size_t>(depth_ - 1)).labels,
               context.empty({rows}, DType::f32, Category::activation));
  }
  const std::int64_t known = batch.sequence - depth_;
  const Tensor losses = context.empty({known}, DType::f32, Category::activation);
  for (std::int64_t row = 0; row < y.dim(0); row += batch.sequence) {
    run(row, known, batch.labels.rows(row + depth_, known), losses);
    fill(context, saved.gradient.rows(row + known, depth_), 0);
  }
}

Tensor MultiTokenLayer::forward(Context& context, const MicroBatch& batch, const Tensor& h,
                                SavedActivationsPtr& kept) const {
  auto saved = std::make_unique<Saved>();
  saved->tokens = tokens(context, batch);
  Tensor pair = context.empty({h.dim(0), 2 * h.dim(1)}, h.dtype(), Category::activation);
  const Tensor embedding = lookup_.forward(context, batch.version, saved->tokens, dtype_);
  copy_heads(context,
             half(embedding_norm_.forward(context, batch.version, embedding, saved->embedding_norm),
                  pair, false));
  copy_heads(context,
             half(hidden_norm_.forward(context, batch.version, h, saved->hidden_norm), pair, true));
  Tensor x = projection_.forward(context, batch.version, pair, saved->projection);
  x = block_->forward(context, batch, x, saved->block);
  x = norm_.forward(context, batch.version, x, saved->norm);
  run_output(context, batch, x, *saved);
  kept = std::move(saved);
  return x;
}

Tensor MultiTokenLayer::backward_input(Context& context, const MicroBatch& batch,
                                       const Tensor& grad, SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  Tensor g = parallel_.reduce_partial_sums(context, std::exchange(saved.gradient, Tensor()));
  if (grad.defined()) add(context, grad, g);
  g = norm_.backward_input(context, batch.version, g, {}, saved.norm);
  g = block_->backward_input(context, batch, g, saved.block);
  const Tensor pair = projection_.backward_input(context, batch.version, g, saved.projection);
  const auto part = [&](bool second) {
    Tensor one = context.empty({pair.dim(0), pair.dim(1) / 2}, pair.dtype(), Category::activation);
    HeadPartsArgs args = half(one, pair, second);
    std::swap(args.from, args.to);
    copy_heads(context, args);
    return one;
  };
  saved.embedding_gradient =
      embedding_norm_.backward_input(context, batch.version, part(false), {}, saved.embedding_norm);
  return hidden_norm_.backward_input(context, batch.version, part(true), {}, saved.hidden_norm);
}

void MultiTokenLayer::backward_weight(Context& context, const MicroBatch& batch,
                                      SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  norm_.backward_weight(context, saved.norm);
  block_->backward_weight(context, batch, saved.block);
  projection_.backward_weight(context, saved.projection);
  hidden_norm_.backward_weight(context, saved.hidden_norm);
  embedding_norm_.backward_weight(context, saved.embedding_norm);
  lookup_.backward_weight(context, saved.tokens, saved.embedding_gradient);
  kept.reset();
}

}  // namespace trident

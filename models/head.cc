#include "models/head.h"

#include <utility>

#include "kernels/elementwise.h"

namespace trident {
namespace {
struct HeadActivations final : SavedActivations {
  NormActivations norm;
  Tensor gradient;  // of the norm's output, (T, H), this rank's addend of the sum
  std::vector<SavedActivationsPtr> further;
};
}  // namespace

LanguageModelHead::LanguageModelHead(const ParallelContext& parallel, const TransformerShape& shape,
                                     Weight table)
    : norm_(parallel, "final_norm", shape.hidden, shape.norm_epsilon, shape.layer_norm),
      parallel_(parallel),
      output_(parallel, shape, std::move(table)) {}

LanguageModelHead::LanguageModelHead(const ParallelContext& parallel, const TransformerShape& shape,
                                     Weight table, Weight embedding,
                                     std::vector<std::unique_ptr<Module>> blocks)
    : LanguageModelHead(parallel, shape, std::move(table)) {
  embedding_ = std::move(embedding);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    further_.emplace_back(parallel, shape, static_cast<std::int64_t>(i) + 1, output_, embedding_,
                          std::move(blocks[i]));
  }
}

std::vector<std::shared_ptr<Parameter>> LanguageModelHead::parameters() const {
  std::vector<std::shared_ptr<Parameter>> list;
  norm_.collect(list);
  for (const MultiTokenLayer& layer : further_) {
    for (auto& parameter : layer.parameters()) list.push_back(std::move(parameter));
  }
  list.push_back(output_.table());
  if (embedding_) list.push_back(embedding_.parameter());
  return list;
}

std::vector<std::shared_ptr<Parameter>> LanguageModelHead::backward_parameters() const {
  std::vector<std::shared_ptr<Parameter>> list;
  norm_.collect(list);
  for (const MultiTokenLayer& layer : further_) {
    for (auto& parameter : layer.backward_parameters()) list.push_back(std::move(parameter));
  }
  return list;
}

// A table with both uses here is complete when the embedding's use is.
std::vector<std::shared_ptr<Parameter>> LanguageModelHead::forward_gradients() const {
  std::vector<std::shared_ptr<Parameter>> list;
  for (const MultiTokenLayer& layer : further_) {
    for (auto& parameter : layer.forward_gradients()) list.push_back(std::move(parameter));
  }
  if (!embedding_ || embedding_.parameter() != output_.table()) list.push_back(output_.table());
  return list;
}

std::vector<std::shared_ptr<Parameter>> LanguageModelHead::buffers() const {
  std::vector<std::shared_ptr<Parameter>> list;
  for (const MultiTokenLayer& layer : further_) {
    for (auto& buffer : layer.buffers()) list.push_back(std::move(buffer));
  }
  return list;
}

Tensor LanguageModelHead::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                                  SavedActivationsPtr& kept) const {
  auto saved = std::make_unique<HeadActivations>();
  Tensor h = norm_.forward(context, batch.version, x, saved->norm);
  const Tensor y = parallel_.gather_rows(context, h);
  if (further_.empty()) h = Tensor();
  const std::int64_t rows = y.dim(0);
  Tensor result;
  if (!batch.labels) {
    const std::int64_t wanted = batch.logit_rows > 0 ? batch.logit_rows : rows;
    result = output_.logits(context, batch.version, y.rows(rows - wanted, wanted));
  } else {
    result = context.empty({rows}, DType::f32, Category::activation);
    if (batch.training) {
      saved->gradient = context.empty(y.shape(), y.dtype(), Category::activation);
    }
    output_.run(context, batch.version, y, batch.labels, result,
                batch.training ? std::optional(batch.loss_scale) : std::nullopt, saved->gradient);
    for (std::size_t i = 0; batch.training && i < further_.size(); ++i) {
      h = further_[i].forward(context, batch, h, saved->further.emplace_back());
    }
  }
  kept = std::move(saved);
  return result;
}

Tensor LanguageModelHead::backward_input(Context& context, const MicroBatch& batch, const Tensor&,
                                         SavedActivationsPtr& kept) const {
  auto& saved = static_cast<HeadActivations&>(*kept);
  Tensor of_further;
  for (std::size_t i = further_.size(); i-- > 0;) {
    of_further = further_[i].backward_input(context, batch, of_further, saved.further[i]);
  }
  const Tensor g = parallel_.reduce_partial_sums(context, std::exchange(saved.gradient, Tensor()));
  if (of_further.defined()) add(context, of_further, g);
  return norm_.backward_input(context, batch.version, g, {}, saved.norm);
}

void LanguageModelHead::backward_weight(Context& context, const MicroBatch& batch,
                                        SavedActivationsPtr& kept) const {
  auto& saved = static_cast<HeadActivations&>(*kept);
  for (std::size_t i = further_.size(); i-- > 0;) {
    further_[i].backward_weight(context, batch, saved.further[i]);
  }
  norm_.backward_weight(context, saved.norm);
  kept.reset();
}

}  // namespace trident

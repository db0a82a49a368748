#include "models/block.h"

#include "core/rng.h"
#include "kernels/dropout.h"

namespace trident {
namespace {

struct BlockActivations final : SavedActivations {
  NormActivations attention_norm, mlp_norm;
  AttentionActivations attention;
  MlpActivations mlp;
};

}  // namespace

Block::Block(const ParallelContext& parallel, const TransformerShape& shape,
             const std::string& name)
    : parallel_(parallel),
      dropout_(shape.hidden_dropout),
      attention_key_(random_key(shape.seed, name + ".attention.dropout")),
      mlp_key_(random_key(shape.seed, name + ".mlp.dropout")),
      attention_norm_(parallel, name + ".attention_norm", shape.hidden, shape.norm_epsilon,
                      shape.biases),
      mlp_norm_(parallel, name + ".mlp_norm", shape.hidden, shape.norm_epsilon, shape.biases),
      attention_(parallel, shape, name + ".attention"),
      mlp_(parallel, shape, name + ".mlp") {}

std::vector<std::shared_ptr<Parameter>> Block::parameters() const {
  std::vector<std::shared_ptr<Parameter>> list;
  attention_norm_.collect(list);
  attention_.collect(list);
  mlp_norm_.collect(list);
  mlp_.collect(list);
  return list;
}

Tensor Block::dropout(Context& context, const MicroBatch& batch, std::uint64_t key, const Tensor& x,
                      const Tensor& residual) const {
  const float probability = batch.training ? dropout_ : 0.0f;
  if (probability == 0 && !residual.defined()) return x;
  Tensor y = residual.defined() ? x  // no other tensor shares x
                                : context.empty(x.shape(), x.dtype(), Category::activation);
  dropout_add(context,
              {.dropout = {.probability = probability, .key = key, .samples = batch.samples},
               .x = x,
               .residual = residual,
               .y = y,
               .sequence = batch.sequence,
               .first_row = parallel_.first_row(x)});
  return y;
}

Tensor Block::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                      SavedActivationsPtr& kept) const {
  auto saved = std::make_unique<BlockActivations>();
  Tensor a = attention_norm_.forward(context, batch.version, x, saved->attention_norm);
  a = attention_.forward(context, batch, a, saved->attention);
  const Tensor h = dropout(context, batch, attention_key_, a, x);
  Tensor m = mlp_norm_.forward(context, batch.version, h, saved->mlp_norm);
  m = mlp_.forward(context, batch.version, m, saved->mlp);
  const Tensor y = dropout(context, batch, mlp_key_, m, h);
  kept = std::move(saved);
  return y;
}

Tensor Block::backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                             SavedActivationsPtr& kept) const {
  auto& saved = static_cast<BlockActivations&>(*kept);
  Tensor g = dropout(context, batch, mlp_key_, grad_y, {});
  g = mlp_.backward_input(context, batch.version, g, saved.mlp);
  const Tensor grad_h = mlp_norm_.backward_input(context, batch.version, g, grad_y, saved.mlp_norm);
  g = dropout(context, batch, attention_key_, grad_h, {});
  g = attention_.backward_input(context, batch, g, saved.attention);
  return attention_norm_.backward_input(context, batch.version, g, grad_h, saved.attention_norm);
}

void Block::backward_weight(Context& context, const MicroBatch&, SavedActivationsPtr& kept) const {
  auto& saved = static_cast<BlockActivations&>(*kept);
  mlp_.backward_weight(context, saved.mlp);
  mlp_norm_.backward_weight(context, saved.mlp_norm);
  attention_.backward_weight(context, saved.attention);
  attention_norm_.backward_weight(context, saved.attention_norm);
  kept.reset();
}

}  // namespace trident

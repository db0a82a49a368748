#include "models/block.h"

#include <utility>

#include "core/rng.h"
#include "kernels/dropout.h"

namespace trident {
namespace {

struct BlockActivations final : SavedActivations {
  NormActivations mixer_norm, feed_forward_norm;
  SavedActivationsPtr mixer, feed_forward;
};

}  // namespace

Block::Block(const ParallelContext& parallel, const TransformerShape& shape,
             const std::string& name, std::unique_ptr<Module> mixer,
             std::unique_ptr<Module> feed_forward)
    : parallel_(parallel),
      dropout_(shape.hidden_dropout),
      mixer_key_(random_key(shape.seed, name + ".attention.dropout")),
      feed_forward_key_(random_key(shape.seed, name + ".mlp.dropout")),
      mixer_norm_(parallel, name + ".attention_norm", shape.hidden, shape.norm_epsilon,
                  shape.layer_norm),
      feed_forward_norm_(parallel, name + ".mlp_norm", shape.hidden, shape.norm_epsilon,
                         shape.layer_norm),
      mixer_(std::move(mixer)),
      feed_forward_(std::move(feed_forward)) {}

std::vector<std::shared_ptr<Parameter>> Block::parameters() const {
  return with_norms(&Module::parameters);
}

std::vector<std::shared_ptr<Parameter>> Block::backward_parameters() const {
  return with_norms(&Module::backward_parameters);
}

std::vector<std::shared_ptr<Parameter>> Block::forward_gradients() const {
  auto list = mixer_->forward_gradients();
  for (auto& parameter : feed_forward_->forward_gradients()) list.push_back(std::move(parameter));
  return list;
}

std::vector<std::shared_ptr<Parameter>> Block::buffers() const {
  auto list = mixer_->buffers();
  for (auto& buffer : feed_forward_->buffers()) list.push_back(std::move(buffer));
  return list;
}

std::vector<std::shared_ptr<Parameter>> Block::with_norms(
    std::vector<std::shared_ptr<Parameter>> (Module::*of)() const) const {
  std::vector<std::shared_ptr<Parameter>> list;
  const auto append = [&](const Module& sublayer) {
    for (auto& parameter : (sublayer.*of)()) list.push_back(std::move(parameter));
  };
  mixer_norm_.collect(list);
  append(*mixer_);
  feed_forward_norm_.collect(list);
  append(*feed_forward_);
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
               .first_row = parallel_.first_row(x),
               .places = batch.places});
  return y;
}

Tensor Block::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                      SavedActivationsPtr& kept) const {
  auto saved = std::make_unique<BlockActivations>();
  Tensor a = mixer_norm_.forward(context, batch.version, x, saved->mixer_norm);
  a = mixer_->forward(context, batch, a, saved->mixer);
  const Tensor h = dropout(context, batch, mixer_key_, a, x);
  Tensor f = feed_forward_norm_.forward(context, batch.version, h, saved->feed_forward_norm);
  f = feed_forward_->forward(context, batch, f, saved->feed_forward);
  const Tensor y = dropout(context, batch, feed_forward_key_, f, h);
  kept = std::move(saved);
  return y;
}

Tensor Block::backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                             SavedActivationsPtr& kept) const {
  auto& saved = static_cast<BlockActivations&>(*kept);
  Tensor g = dropout(context, batch, feed_forward_key_, grad_y, {});
  g = feed_forward_->backward_input(context, batch, g, saved.feed_forward);
  const Tensor grad_h =
      feed_forward_norm_.backward_input(context, batch.version, g, grad_y, saved.feed_forward_norm);
  g = dropout(context, batch, mixer_key_, grad_h, {});
  g = mixer_->backward_input(context, batch, g, saved.mixer);
  return mixer_norm_.backward_input(context, batch.version, g, grad_h, saved.mixer_norm);
}

void Block::backward_weight(Context& context, const MicroBatch& batch,
                            SavedActivationsPtr& kept) const {
  auto& saved = static_cast<BlockActivations&>(*kept);
  feed_forward_->backward_weight(context, batch, saved.feed_forward);
  feed_forward_norm_.backward_weight(context, saved.feed_forward_norm);
  mixer_->backward_weight(context, batch, saved.mixer);
  mixer_norm_.backward_weight(context, saved.mixer_norm);
  kept.reset();
}

}  // namespace trident

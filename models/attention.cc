#include "models/attention.h"

#include "core/rng.h"
#include "kernels/rotary.h"

namespace trident {
namespace {

std::vector<std::int64_t> qkv_blocks(const TransformerShape& shape) {
  return {shape.heads * shape.head_dim(), shape.groups * shape.head_dim(),
          shape.groups * shape.head_dim()};
}

}  // namespace

struct Attention::Saved final : SavedActivations {
  LinearActivations projection, output;
  Tensor qkv, out, log_sum_exp;
};

Attention::Attention(const ParallelContext& parallel, const TransformerShape& shape,
                     const std::string& name)
    : heads_(parallel.own(shape.heads).count),
      groups_(parallel.own(shape.groups).count),
      head_dim_(shape.head_dim()),
      head_offset_(parallel.own(shape.heads).begin),
      dropout_(shape.attention_dropout),
      dropout_key_(random_key(shape.seed, name + ".attention_dropout")),
      recompute_core_(shape.recompute_attention),
      rotary_(shape.rotary),
      rotary_base_(shape.rotary_base),
      projection_(parallel.linear({.name = name + ".qkv",
                                   .role = LinearRole::column,
                                   .in = shape.hidden,
                                   .out = qkv_blocks(shape),
                                   .bias = shape.qkv_bias,
                                   .init_deviation = shape.init_deviation})),
      output_(parallel.linear({.name = name + ".output",
                               .role = LinearRole::row,
                               .in = shape.hidden,
                               .out = {shape.hidden},
                               .bias = shape.output_bias,
                               .init_deviation = shape.output_deviation()})) {}

AttentionShape Attention::shape_of(const MicroBatch& batch) const {
  return {.batch = batch.batch,
          .sequence = batch.sequence,
          .heads = heads_,
          .groups = groups_,
          .head_dim = head_dim_};
}

DropoutArgs Attention::dropout_of(const MicroBatch& batch) const {
  return {.probability = batch.training ? dropout_ : 0.0f,
          .key = dropout_key_,
          .samples = batch.samples};
}

void Attention::core(Context& context, const MicroBatch& batch, Saved& saved) const {
  saved.out = context.empty({batch.batch * batch.sequence, heads_ * head_dim_}, saved.qkv.dtype(),
                            Category::activation);
  saved.log_sum_exp =
      context.empty({batch.batch, heads_, batch.sequence}, DType::f32, Category::activation);
  const AttentionShape shape = shape_of(batch);
  attention_forward(context, {.shape = shape,
                              .in = split_qkv(shape, saved.qkv),
                              .out = saved.out,
                              .log_sum_exp = saved.log_sum_exp,
                              .dropout = dropout_of(batch),
                              .head_offset = head_offset_});
}

void Attention::cached_core(Context& context, const MicroBatch& batch, Saved& saved) const {
  const AttentionShape shape = shape_of(batch);
  Tensor& cache = batch.cache->of_layer(this);
  if (!cache) {
    cache =
        context.empty({shape.batch, batch.cache->positions(), 2 * shape.groups * shape.head_dim},
                      saved.qkv.dtype(), Category::activation);
  }
  const CacheArgs args{
      .shape = shape, .begin = batch.begin, .in = split_qkv(shape, saved.qkv), .cache = cache};
  append_to_cache(context, args);
  if (batch.begin == 0) return core(context, batch, saved);
  saved.out = context.empty({shape.batch * shape.sequence, heads_ * head_dim_}, saved.qkv.dtype(),
                            Category::activation);
  attention_cached(context, args, saved.out);
}

Tensor Attention::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                          SavedActivationsPtr& kept) const {
  auto owned = std::make_unique<Saved>();
  Saved& saved = *owned;
  kept = std::move(owned);
  saved.qkv = projection_.forward(context, batch.version, x, saved.projection);
  if (rotary_) {
    RotaryArgs args = rotary_of(shape_of(batch), saved.qkv);
    args.frequencies.base = rotary_base_;
    args.begin = batch.begin;
    args.positions = batch.cache != nullptr ? batch.cache->positions() : 0;
    rotary(context, args);
  }
  if (batch.cache != nullptr) {
    cached_core(context, batch, saved);
  } else {
    core(context, batch, saved);
  }
  Tensor y = output_.forward(context, batch.version, saved.out, saved.output);
  if (recompute_core_) saved.out = saved.log_sum_exp = saved.output.input = Tensor();
  return y;
}

Tensor Attention::backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                                 SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  const AttentionShape shape = shape_of(batch);
  const Tensor grad_out = output_.backward_input(context, batch.version, grad_y, saved.output);
  if (recompute_core_) {
    core(context, batch, saved);
    saved.output.input = saved.out;
  }
  Tensor grad_qkv = context.empty(saved.qkv.shape(), grad_y.dtype(), Category::activation);
  attention_backward(context, {.forward = {.shape = shape,
                                           .in = split_qkv(shape, saved.qkv),
                                           .out = saved.out,
                                           .log_sum_exp = saved.log_sum_exp,
                                           .dropout = dropout_of(batch),
                                           .head_offset = head_offset_},
                               .grad_out = grad_out,
                               .grad = split_qkv(shape, grad_qkv)});
  if (rotary_) {
    RotaryArgs args = rotary_of(shape, grad_qkv);
    args.frequencies.base = rotary_base_;
    args.inverse = true;
    rotary(context, args);
  }
  saved.qkv = saved.out = saved.log_sum_exp = Tensor();
  return projection_.backward_input(context, batch.version, grad_qkv, saved.projection);
}

void Attention::backward_weight(Context& context, const MicroBatch&,
                                SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  output_.backward_weight(context, saved.output);
  projection_.backward_weight(context, saved.projection);
  kept.reset();
}

std::vector<std::shared_ptr<Parameter>> Attention::parameters() const {
  std::vector<std::shared_ptr<Parameter>> list;
  projection_.collect(list);
  output_.collect(list);
  return list;
}

}  // namespace trident

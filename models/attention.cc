#include "models/attention.h"

#include "core/rng.h"

namespace trident {
namespace {

std::vector<std::int64_t> qkv_blocks(const TransformerShape& shape) {
  return {shape.heads * shape.head_dim(), shape.groups * shape.head_dim(),
          shape.groups * shape.head_dim()};
}

std::int64_t qkv_rows(const TransformerShape& shape) {
  return (shape.heads + 2 * shape.groups) * shape.head_dim();
}

}  // namespace

Attention::Attention(const TensorParallel& parallel, const TransformerShape& shape,
                     const std::string& name)
    : heads_(shape.heads / parallel.size),
      groups_(shape.groups / parallel.size),
      head_dim_(shape.head_dim()),
      head_offset_(parallel.rank * heads_),
      dropout_(shape.attention_dropout),
      dropout_key_(random_key(shape.seed, name + ".attention_dropout")),
      recompute_core_(shape.recompute_attention),
      rotary_(shape.rotary),
      rotary_base_(shape.rotary_base),
      projection_(
          parallel,
          kept(parameters_,
               linear_weight(name + ".qkv.weight",
                             parallel.stacked({qkv_rows(shape), shape.hidden}, qkv_blocks(shape)),
                             shape.init_deviation)),
          shape.biases ? kept(parameters_,
                              linear_bias(name + ".qkv.bias",
                                          parallel.stacked({qkv_rows(shape)}, qkv_blocks(shape))))
                       : Weight()),
      output_(parallel,
              kept(parameters_, linear_weight(name + ".output.weight",
                                              parallel.part({shape.hidden, shape.hidden}, 1),
                                              shape.output_deviation())),
              shape.biases ? kept(parameters_, linear_bias(name + ".output.bias",
                                                           parallel.whole({shape.hidden})))
                           : Weight()) {}

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

void Attention::core(Context& context, const MicroBatch& batch, AttentionRecord& record) const {
  record.out = context.empty({batch.batch * batch.sequence, heads_ * head_dim_}, record.qkv.dtype(),
                             Category::activation);
  record.log_sum_exp =
      context.empty({batch.batch, heads_, batch.sequence}, DType::f32, Category::activation);
  attention_forward(context, {.shape = shape_of(batch),
                              .qkv = record.qkv,
                              .out = record.out,
                              .log_sum_exp = record.log_sum_exp,
                              .dropout = dropout_of(batch),
                              .head_offset = head_offset_});
}

void Attention::cached_core(Context& context, const MicroBatch& batch,
                            AttentionRecord& record) const {
  const AttentionShape shape = shape_of(batch);
  Tensor& cache = batch.cache->of_layer(this);
  if (!cache) {
    cache =
        context.empty({shape.batch, batch.cache->positions(), 2 * shape.groups * shape.head_dim},
                      record.qkv.dtype(), Category::activation);
  }
  const CacheArgs args{.shape = shape, .begin = batch.begin, .qkv = record.qkv, .cache = cache};
  append_to_cache(context, args);
  if (batch.begin == 0) return core(context, batch, record);
  record.out = context.empty({shape.batch * shape.sequence, heads_ * head_dim_}, record.qkv.dtype(),
                             Category::activation);
  attention_cached(context, args, record.out);
}

Tensor Attention::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                          AttentionRecord& record) const {
  record.qkv = projection_.forward(context, batch.version, x, record.projection);
  if (rotary_) {
    rotary(context, {.shape = shape_of(batch),
                     .qkv = record.qkv,
                     .base = rotary_base_,
                     .begin = batch.begin,
                     .positions = batch.cache != nullptr ? batch.cache->positions() : 0});
  }
  if (batch.cache != nullptr) {
    cached_core(context, batch, record);
  } else {
    core(context, batch, record);
  }
  Tensor y = output_.forward(context, batch.version, record.out, record.output);
  if (recompute_core_) record.out = record.log_sum_exp = record.output.input = Tensor();
  return y;
}

Tensor Attention::backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                                 AttentionRecord& record) const {
  const AttentionShape shape = shape_of(batch);
  const Tensor grad_out = output_.backward_input(context, batch.version, grad_y, record.output);
  if (recompute_core_) {
    core(context, batch, record);
    record.output.input = record.out;
  }
  Tensor grad_qkv = context.empty(record.qkv.shape(), grad_y.dtype(), Category::activation);
  attention_backward(context, {.shape = shape,
                               .qkv = record.qkv,
                               .out = record.out,
                               .log_sum_exp = record.log_sum_exp,
                               .grad_out = grad_out,
                               .grad_qkv = grad_qkv,
                               .dropout = dropout_of(batch),
                               .head_offset = head_offset_});
  if (rotary_) {
    rotary(context, {.shape = shape, .qkv = grad_qkv, .base = rotary_base_, .inverse = true});
  }
  record.qkv = record.out = record.log_sum_exp = Tensor();
  return projection_.backward_input(context, batch.version, grad_qkv, record.projection);
}

void Attention::backward_weight(Context& context, AttentionRecord& record) const {
  output_.backward_weight(context, record.output);
  projection_.backward_weight(context, record.projection);
}

void Attention::collect(std::vector<std::shared_ptr<Parameter>>& into) const {
  into.insert(into.end(), parameters_.begin(), parameters_.end());
}

}  // namespace trident

#include "models/attention.h"

#include <algorithm>

#include "core/rng.h"
#include "kernels/elementwise.h"

namespace trident {
namespace {

std::vector<std::int64_t> qkv_blocks(const TransformerShape& shape) {
  return {shape.heads * shape.head_dim(), shape.groups * shape.head_dim(),
          shape.groups * shape.head_dim()};
}

}  // namespace

struct Attention::Saved final : SavedActivations {
  LinearActivations projection, output;
  // qkv: the projection's output. qk: the query and key heads that the scores are computed from;
  // qkv itself without norms.
  Tensor qkv, qk, out, log_sum_exp;
  Tensor query_rstd, key_rstd, grad_qk;  // of the norms
  Tensor grad_sinks;
};

Attention::Attention(const ParallelContext& parallel, const TransformerShape& shape,
                     const std::string& name, std::int64_t window)
    : heads_(parallel.own(shape.heads).count),
      groups_(parallel.own(shape.groups).count),
      head_dim_(shape.head_dim()),
      head_offset_(parallel.own(shape.heads).begin),
      window_(window),
      dropout_(shape.attention_dropout),
      dropout_key_(random_key(shape.seed, name + ".attention_dropout")),
      recompute_core_(shape.recompute_attention),
      rotary_(shape.rotary),
      frequencies_(shape.rotary_frequencies),
      context_(parallel.context_attention()),
      projection_(parallel.linear({.name = name + ".qkv",
                                   .role = LinearRole::column,
                                   .in = shape.hidden,
                                   .out = qkv_blocks(shape),
                                   .bias = shape.qkv_bias,
                                   .init_deviation = shape.init_deviation})),
      output_(parallel.linear({.name = name + ".output",
                               .role = LinearRole::row,
                               .in = shape.heads * shape.head_dim(),
                               .out = {shape.hidden},
                               .bias = shape.output_bias,
                               .init_deviation = shape.output_deviation()})) {
  if (shape.sinks) {
    sinks_ = Weight(
        std::make_shared<Parameter>(ParameterSpec{.name = name + ".sinks",
                                                  .placement = parallel.sharded({shape.heads}, 0),
                                                  .initial = Initial::normal(shape.init_deviation),
                                                  .role = ParameterRole::vector}));
  }
  if (!shape.qk_norm) return;
  const auto norm = [&](const char* of, std::int64_t all, std::int64_t own) {
    return shape.norms_all_heads
               ? norm_of_all_heads(parallel, name + of, all, head_dim_, shape.norm_epsilon)
               : norm_of_each_head(parallel, name + of, own, head_dim_, shape.norm_epsilon);
  };
  norms_.emplace(
      Norms{norm(".q_norm", shape.heads, heads_), norm(".k_norm", shape.groups, groups_)});
}

AttentionShape Attention::shape_of(const MicroBatch& batch) const {
  return {.batch = batch.batch,
          .sequence = batch.sequence,
          .heads = heads_,
          .groups = groups_,
          .head_dim = head_dim_};
}

QueryKeyValue Attention::operands(const Tensor& qk, const Tensor& qkv) const {
  const std::int64_t keys = heads_ * head_dim_;
  return {.query = {qk, 0}, .key = {qk, keys}, .value = {qkv, keys + groups_ * head_dim_}};
}

DropoutArgs Attention::dropout_of(const MicroBatch& batch) const {
  return {.probability = batch.training ? dropout_ : 0.0f,
          .key = dropout_key_,
          .samples = batch.samples};
}

void Attention::prepare(Context& context, const MicroBatch& batch, Saved& saved) const {
  const AttentionShape shape = shape_of(batch);
  saved.qk = saved.qkv;
  if (norms_) {
    saved.qk = context.empty({saved.qkv.dim(0), (heads_ + groups_) * head_dim_}, saved.qkv.dtype(),
                             Category::activation);
    const QueryKeyValue from = operands(saved.qkv, saved.qkv), to = operands(saved.qk, saved.qkv);
    norms_->query->forward(context, batch.version, from.query, to.query, saved.query_rstd);
    norms_->key->forward(context, batch.version, from.key, to.key, saved.key_rstd);
  }
  if (!rotary_) return;
  RotaryArgs args = rotary_of(shape, saved.qk);
  args.frequencies = frequencies_;
  args.begin = batch.begin;
  args.row_positions = batch.positions;
  args.positions = batch.cache != nullptr ? batch.cache->positions() : batch.sample_positions();
  rotary(context, args);
}

AttentionArgs Attention::core_args(const MicroBatch& batch, const Saved& saved) const {
  return {.shape = shape_of(batch),
          .in = operands(saved.qk, saved.qkv),
          .out = saved.out,
          .log_sum_exp = saved.log_sum_exp,
          .mask = {.window = window_, .document_begins = batch.document_begins},
          .sinks = sinks_ ? sinks_.acquire(batch.version).tensor() : Tensor(),
          .dropout = dropout_of(batch),
          .head_offset = head_offset_};
}

void Attention::core(Context& context, const MicroBatch& batch, Saved& saved) const {
  saved.out = context.empty({batch.batch * batch.sequence, heads_ * head_dim_}, saved.qkv.dtype(),
                            Category::activation);
  saved.log_sum_exp = context_.make_log_sum_exp(context, shape_of(batch), batch.sample_positions());
  context_.forward(context, core_args(batch, saved), batch.sample_positions());
}

// Adds the new keys and values to the layer's cache. A layer with a window keeps the positions that
// later queries see, in room for two windows, so that it rarely has to move them.
void Attention::append(Context& context, CacheArgs& args, KeyValueCache::Layer& cache,
                       std::int64_t positions) const {
  const AttentionShape& shape = args.shape;
  const std::int64_t end = args.begin + shape.sequence, row = 2 * groups_ * head_dim_;
  const bool slides = window_ > 0 && 2 * window_ < positions;
  const auto make = [&](std::int64_t count) {
    return context.empty({shape.batch, count, row}, args.in.key.rows.dtype(), Category::activation);
  };
  if (!cache.rows) cache.rows = make(slides ? 2 * window_ : positions);
  const std::int64_t held = cache.rows.dim(1);
  cache.window = window_;
  if (args.begin == 0) {
    cache.begin = slides && end > held ? end - window_ + 1 : 0;
    args.skipped = cache.begin;
  } else if (slides && end > cache.begin + held) {
    const Tensor old = cache.rows.view({shape.batch * held, row});
    CacheArgs kept{
        .shape = shape, .begin = cache.begin, .in = {{}, {old, 0}, {old, groups_ * head_dim_}}};
    kept.shape.sequence = held;
    cache.begin = std::max(cache.begin, args.begin - window_ + 1);
    cache.rows = make(std::max(held, end - cache.begin));
    kept.skipped = cache.begin - kept.begin;
    kept.cache_begin = cache.begin;
    kept.cache = cache.rows;
    append_to_cache(context, kept);
  }
  args.cache_begin = cache.begin;
  args.cache = cache.rows;
  append_to_cache(context, args);
}

void Attention::cached_core(Context& context, const MicroBatch& batch, Saved& saved) const {
  const AttentionShape shape = shape_of(batch);
  CacheArgs args{
      .shape = shape, .begin = batch.begin, .in = operands(saved.qk, saved.qkv), .window = window_};
  append(context, args, batch.cache->of_layer(this), batch.cache->positions());
  if (batch.begin == 0) return core(context, batch, saved);
  saved.out = context.empty({shape.batch * shape.sequence, heads_ * head_dim_}, saved.qkv.dtype(),
                            Category::activation);
  args.skipped = 0;
  if (sinks_) args.sinks = sinks_.acquire(batch.version).tensor();
  attention_cached(context, args, saved.out);
}

Tensor Attention::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                          SavedActivationsPtr& kept) const {
  auto owned = std::make_unique<Saved>();
  Saved& saved = *owned;
  kept = std::move(owned);
  saved.qkv = projection_.forward(context, batch.version, x, saved.projection);
  prepare(context, batch, saved);
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
  const Tensor grad_out = output_.backward_input(context, batch.version, grad_y, saved.output);
  if (recompute_core_) {
    core(context, batch, saved);
    saved.output.input = saved.out;
  }
  Tensor grad_qkv = context.empty(saved.qkv.shape(), grad_y.dtype(), Category::activation);
  saved.grad_qk =
      norms_ ? context.empty(saved.qk.shape(), grad_y.dtype(), Category::activation) : grad_qkv;
  if (sinks_) {
    saved.grad_sinks = context.empty({heads_}, DType::f32, Category::activation);
    fill(context, saved.grad_sinks, 0);
  }
  context_.backward(context,
                    {.forward = core_args(batch, saved),
                     .grad_out = grad_out,
                     .grad = operands(saved.grad_qk, grad_qkv),
                     .grad_sinks = saved.grad_sinks},
                    batch.sample_positions());
  saved.out = saved.log_sum_exp = saved.qk = Tensor();
  prepare_backward(context, batch, saved, grad_qkv);
  if (!norms_) saved.qkv = saved.grad_qk = Tensor();
  return projection_.backward_input(context, batch.version, grad_qkv, saved.projection);
}

// Turns the gradients of the queries and keys in grad_qk into those of the projection's output.
void Attention::prepare_backward(Context& context, const MicroBatch& batch, Saved& saved,
                                 const Tensor& grad_qkv) const {
  if (rotary_) {
    RotaryArgs args = rotary_of(shape_of(batch), saved.grad_qk);
    args.frequencies = frequencies_;
    args.row_positions = batch.positions;
    args.positions = batch.sample_positions();
    args.inverse = true;
    rotary(context, args);
  }
  if (!norms_) return;
  const QueryKeyValue grad_y = operands(saved.grad_qk, grad_qkv);
  const QueryKeyValue x = operands(saved.qkv, saved.qkv), grad_x = operands(grad_qkv, grad_qkv);
  norms_->query->backward_input(context, batch.version, grad_y.query, x.query, saved.query_rstd,
                                grad_x.query);
  norms_->key->backward_input(context, batch.version, grad_y.key, x.key, saved.key_rstd,
                              grad_x.key);
}

void Attention::backward_weight(Context& context, const MicroBatch&,
                                SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  output_.backward_weight(context, saved.output);
  if (norms_) {
    const QueryKeyValue grad_y = operands(saved.grad_qk, saved.grad_qk);
    const QueryKeyValue x = operands(saved.qkv, saved.qkv);
    norms_->query->backward_weight(context, grad_y.query, x.query, saved.query_rstd);
    norms_->key->backward_weight(context, grad_y.key, x.key, saved.key_rstd);
  }
  if (sinks_) {
    const Tensor& sum = sinks_.gradient(context);
    Tensor own = saved.grad_sinks;
    if (sum.dtype() != own.dtype()) {
      own = context.empty(sum.shape(), sum.dtype(), Category::activation);
      copy(context, saved.grad_sinks, own);
    }
    add(context, own, sum);
  }
  projection_.backward_weight(context, saved.projection);
  kept.reset();
}

std::vector<std::shared_ptr<Parameter>> Attention::parameters() const {
  std::vector<std::shared_ptr<Parameter>> list;
  projection_.collect(list);
  if (norms_) {
    norms_->query->collect(list);
    norms_->key->collect(list);
  }
  if (sinks_) list.push_back(sinks_.parameter());
  output_.collect(list);
  return list;
}

}  // namespace trident

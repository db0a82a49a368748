#include "models/latent_attention.h"

#include <utility>

#include "core/rng.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"

namespace trident {

struct LatentAttention::Saved final : SavedActivations {
  LinearActivations query_down, query, down, up, output;
  NormActivations query_norm, norm;
  Tensor queries;  // (T, A·D)
  KeysAndValues keys_and_values;
  Tensor out, log_sum_exp;
};

namespace {

Linear projection(const ParallelContext& parallel, const TransformerShape& shape,
                  const std::string& name, LinearRole role, std::int64_t in, std::int64_t out,
                  bool bias = false) {
  return parallel.linear({.name = name,
                          .role = role,
                          .in = in,
                          .out = {out},
                          .bias = bias,
                          .init_deviation = role == LinearRole::row ? shape.output_deviation()
                                                                    : shape.init_deviation});
}

}  // namespace

LatentAttention::LatentAttention(const ParallelContext& parallel, const TransformerShape& shape,
                                 const std::string& name)
    : parallel_(parallel),
      shape_(shape.latent),
      heads_(parallel.own(shape.heads).count),
      head_offset_(parallel.own(shape.heads).begin),
      dropout_(shape.attention_dropout),
      dropout_key_(random_key(shape.seed, name + ".attention_dropout")),
      recompute_core_(shape.recompute_attention),
      frequencies_(shape.rotary_frequencies),
      context_(parallel.context_attention()),
      query_(shape_.query_rank > 0 ? projection(parallel, shape, name + ".q_up", LinearRole::column,
                                                shape_.query_rank, shape.heads * shape_.key_dim())
                                   : projection(parallel, shape, name + ".q", LinearRole::column,
                                                shape.hidden, shape.heads * shape_.key_dim())),
      down_(projection(parallel, shape, name + ".kv_down", LinearRole::replicated, shape.hidden,
                       shape_.rank + shape_.rotary, shape.qkv_bias)),
      norm_(parallel, name + ".kv_latent_norm", shape_.rank, shape_.norm_epsilon, false),
      up_(projection(parallel, shape, name + ".kv_up", LinearRole::column, shape_.rank,
                     shape.heads * (shape_.plain + shape_.value))),
      output_(projection(parallel, shape, name + ".output", LinearRole::row,
                         shape.heads * shape_.value, shape.hidden, shape.output_bias)) {
  if (shape_.query_rank == 0) return;
  query_latent_.emplace(QueryLatent{
      projection(parallel, shape, name + ".q_down", LinearRole::replicated, shape.hidden,
                 shape_.query_rank, shape.qkv_bias),
      Norm(parallel, name + ".q_latent_norm", shape_.query_rank, shape_.norm_epsilon, false)});
}

void LatentAttention::rotate(Context& context, const MicroBatch& batch, const HeadParts& x,
                             std::int64_t heads, bool inverse) const {
  rotary(context, {.batch = batch.batch,
                   .sequence = batch.sequence,
                   .heads = heads,
                   .head_dim = shape_.rotary,
                   .x = {x.rows, x.begin},
                   .stride = x.stride,
                   .interleaved = shape_.interleaved,
                   .frequencies = frequencies_,
                   .inverse = inverse,
                   .begin = batch.begin,
                   .row_positions = batch.positions,
                   .positions = batch.cache != nullptr ? batch.cache->positions()
                                                       : batch.sample_positions()});
}

Tensor LatentAttention::queries(Context& context, const MicroBatch& batch, const Tensor& x,
                                Saved& saved) const {
  Tensor from = x;
  if (query_latent_) {
    const Tensor down = query_latent_->down.forward(context, batch.version, x, saved.query_down);
    from = query_latent_->norm.forward(context, batch.version, down, saved.query_norm);
  }
  Tensor q = query_.forward(context, batch.version, from, saved.query);
  rotate(context, batch, {q, shape_.plain, shape_.key_dim()}, heads_, false);
  return q;
}

Tensor LatentAttention::latents(Context& context, const MicroBatch& batch, const Tensor& x,
                                Saved& saved, Tensor& rotary_keys) const {
  const Tensor down = down_.forward(context, batch.version, x, saved.down);
  const auto part = [&](std::int64_t begin, std::int64_t dim) {
    Tensor columns = context.empty({down.dim(0), dim}, down.dtype(), Category::activation);
    copy_heads(context, {.heads = 1, .dim = dim, .from = {down, begin}, .to = {columns}});
    return columns;
  };
  rotary_keys = parallel_.gather_rows(context, part(shape_.rank, shape_.rotary));
  return norm_.forward(context, batch.version, part(0, shape_.rank), saved.norm);
}

LatentAttention::KeysAndValues LatentAttention::spread(Context& context, const Tensor& projected,
                                                       const Tensor& rotary_keys) const {
  const std::int64_t rows = projected.dim(0), plain = shape_.plain, value = shape_.value;
  const auto make = [&](std::int64_t columns) {
    return context.empty({rows, heads_ * columns}, projected.dtype(), Category::activation);
  };
  KeysAndValues all{make(shape_.key_dim()), make(value)};
  const HeadParts key{all.keys, 0, shape_.key_dim()};
  copy_heads(context,
             {.heads = heads_, .dim = plain, .from = {projected, 0, plain + value}, .to = key});
  copy_heads(context, {.heads = heads_,
                       .dim = shape_.rotary,
                       .from = {rotary_keys},
                       .to = {all.keys, plain, shape_.key_dim()}});
  copy_heads(context, {.heads = heads_,
                       .dim = value,
                       .from = {projected, plain, plain + value},
                       .to = {all.values, 0, value}});
  return all;
}

// A cached position is its latent, then the rotated part of its key.
LatentAttention::KeysAndValues LatentAttention::cached(Context& context, const MicroBatch& batch,
                                                       const Tensor& latents,
                                                       const Tensor& rotary_keys) const {
  const std::int64_t row = shape_.rank + shape_.rotary, positions = batch.cache->positions();
  const std::int64_t end = batch.begin + batch.sequence;
  KeyValueCache::Layer& layer = batch.cache->of_layer(this);
  if (!layer.rows) {
    layer.rows =
        context.empty({batch.batch, positions, row}, latents.dtype(), Category::activation);
  }
  append_to_cache(context, {.shape = {.batch = batch.batch,
                                      .sequence = batch.sequence,
                                      .heads = 1,
                                      .groups = 1,
                                      .head_dim = shape_.rank,
                                      .value_head_dim = shape_.rotary},
                            .begin = batch.begin,
                            .in = {{}, {latents, 0}, {rotary_keys, 0}},
                            .cache = layer.rows});
  const auto part = [&](std::int64_t begin, std::int64_t dim) {
    Tensor all = context.empty({batch.batch * end, dim}, latents.dtype(), Category::activation);
    const Tensor from = layer.rows.view({batch.batch * positions, row});
    for (std::int64_t b = 0; b < batch.batch; ++b) {
      copy_heads(context, {.heads = 1,
                           .dim = dim,
                           .from = {from.rows(b * positions, end), begin},
                           .to = {all.rows(b * end, end)}});
    }
    return all;
  };
  LinearActivations none;
  return spread(context, up_.forward(context, batch.version, part(0, shape_.rank), none),
                part(shape_.rank, shape_.rotary));
}

AttentionArgs LatentAttention::core_args(const MicroBatch& batch, const Saved& saved) const {
  const bool continues = batch.cache != nullptr;
  return {.shape = {.batch = batch.batch,
                    .sequence = batch.sequence,
                    .heads = heads_,
                    .groups = heads_,
                    .head_dim = shape_.key_dim(),
                    .key_positions = continues ? batch.begin + batch.sequence : 0,
                    .value_head_dim = shape_.value,
                    .score_factor = shape_.score_factor},
          .in = {{saved.queries, 0},
                 {saved.keys_and_values.keys, 0},
                 {saved.keys_and_values.values, 0}},
          .out = saved.out,
          .log_sum_exp = saved.log_sum_exp,
          .mask = {.query_begin = continues ? batch.begin : 0,
                   .document_begins = batch.document_begins},
          .dropout = {.probability = batch.training ? dropout_ : 0.0f,
                      .key = dropout_key_,
                      .samples = batch.samples},
          .head_offset = head_offset_};
}

void LatentAttention::core(Context& context, const MicroBatch& batch, Saved& saved) const {
  saved.out = context.empty({batch.batch * batch.sequence, heads_ * shape_.value},
                            saved.queries.dtype(), Category::activation);
  saved.log_sum_exp =
      context_.make_log_sum_exp(context, core_args(batch, saved).shape, batch.sample_positions());
  context_.forward(context, core_args(batch, saved), batch.sample_positions());
}

Tensor LatentAttention::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                                SavedActivationsPtr& kept) const {
  auto owned = std::make_unique<Saved>();
  Saved& saved = *owned;
  kept = std::move(owned);
  saved.queries = queries(context, batch, x, saved);
  Tensor rotary_keys;
  const Tensor latent = latents(context, batch, x, saved, rotary_keys);
  rotate(context, batch, {rotary_keys}, 1, false);
  saved.keys_and_values =
      batch.cache != nullptr
          ? cached(context, batch, latent, rotary_keys)
          : spread(context, up_.forward(context, batch.version, latent, saved.up), rotary_keys);
  core(context, batch, saved);
  Tensor y = output_.forward(context, batch.version, saved.out, saved.output);
  if (recompute_core_) saved.out = saved.log_sum_exp = saved.output.input = Tensor();
  return y;
}

// Returns the gradient of kv_down's output.
Tensor LatentAttention::backward_keys(Context& context, const MicroBatch& batch,
                                      const KeysAndValues& grad, Saved& saved) const {
  const std::int64_t rows = grad.keys.dim(0), plain = shape_.plain, value = shape_.value;
  const auto make = [&](std::int64_t count, std::int64_t columns) {
    return context.empty({count, columns}, grad.keys.dtype(), Category::activation);
  };
  const Tensor projected = make(rows, heads_ * (plain + value));
  copy_heads(context, {.heads = heads_,
                       .dim = plain,
                       .from = {grad.keys, 0, shape_.key_dim()},
                       .to = {projected, 0, plain + value}});
  copy_heads(context, {.heads = heads_,
                       .dim = value,
                       .from = {grad.values, 0, value},
                       .to = {projected, plain, plain + value}});
  const Tensor rotary_keys = make(rows, shape_.rotary);
  sum_heads(context, {.heads = heads_,
                      .dim = shape_.rotary,
                      .from = {grad.keys, plain, shape_.key_dim()},
                      .to = {rotary_keys}});
  rotate(context, batch, {rotary_keys}, 1, true);
  // Each rank has the sums over its own heads.
  const Tensor own_keys = parallel_.reduce_partial_sums(context, rotary_keys);
  const Tensor latent = norm_.backward_input(
      context, batch.version, up_.backward_input(context, batch.version, projected, saved.up), {},
      saved.norm);
  Tensor down = make(latent.dim(0), shape_.rank + shape_.rotary);
  copy_heads(context, {.heads = 1, .dim = shape_.rank, .from = {latent}, .to = {down}});
  copy_heads(context,
             {.heads = 1, .dim = shape_.rotary, .from = {own_keys}, .to = {down, shape_.rank}});
  return down;
}

Tensor LatentAttention::backward_input(Context& context, const MicroBatch& batch,
                                       const Tensor& grad_y, SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  const Tensor grad_out = output_.backward_input(context, batch.version, grad_y, saved.output);
  if (recompute_core_) {
    core(context, batch, saved);
    saved.output.input = saved.out;
  }
  const auto like = [&](const Tensor& x) {
    return context.empty(x.shape(), grad_y.dtype(), Category::activation);
  };
  const Tensor grad_q = like(saved.queries);
  const KeysAndValues grad{like(saved.keys_and_values.keys), like(saved.keys_and_values.values)};
  context_.backward(context,
                    {.forward = core_args(batch, saved),
                     .grad_out = grad_out,
                     .grad = {{grad_q, 0}, {grad.keys, 0}, {grad.values, 0}}},
                    batch.sample_positions());
  saved.queries = saved.out = saved.log_sum_exp = Tensor();
  saved.keys_and_values = {};

  rotate(context, batch, {grad_q, shape_.plain, shape_.key_dim()}, heads_, true);
  Tensor grad_x = query_.backward_input(context, batch.version, grad_q, saved.query);
  if (query_latent_) {
    const Tensor down =
        query_latent_->norm.backward_input(context, batch.version, grad_x, {}, saved.query_norm);
    grad_x = query_latent_->down.backward_input(context, batch.version, down, saved.query_down);
  }
  const Tensor grad_down = backward_keys(context, batch, grad, saved);
  add(context, down_.backward_input(context, batch.version, grad_down, saved.down), grad_x);
  return grad_x;
}

void LatentAttention::backward_weight(Context& context, const MicroBatch&,
                                      SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  output_.backward_weight(context, saved.output);
  up_.backward_weight(context, saved.up);
  norm_.backward_weight(context, saved.norm);
  down_.backward_weight(context, saved.down);
  query_.backward_weight(context, saved.query);
  if (query_latent_) {
    query_latent_->norm.backward_weight(context, saved.query_norm);
    query_latent_->down.backward_weight(context, saved.query_down);
  }
  kept.reset();
}

std::vector<std::shared_ptr<Parameter>> LatentAttention::parameters() const {
  std::vector<std::shared_ptr<Parameter>> list;
  if (query_latent_) {
    query_latent_->down.collect(list);
    query_latent_->norm.collect(list);
  }
  query_.collect(list);
  down_.collect(list);
  norm_.collect(list);
  up_.collect(list);
  output_.collect(list);
  return list;
}

}  // namespace trident

#include "models/router.h"

#include <utility>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/routing.h"
#include "models/balanced_routing.h"
#include "models/router_statistics.h"

namespace trident {
namespace {

// x as `dtype`.
Tensor as(Context& context, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor converted = context.empty(x.shape(), dtype, Category::activation);
  copy(context, x, converted);
  return converted;
}

}  // namespace

Router::Router(const ParallelContext& parallel, const TransformerShape& shape,
               const std::string& name, std::int64_t layer)
    : parallel_(parallel), shape_(shape.experts), layer_(layer) {
  const std::int64_t experts = shape_.router.experts;
  const auto make = [&](const char* of, const Shape& global, float deviation, ParameterRole role,
                        bool keeps_fp32) {
    return Weight(std::make_shared<Parameter>(
        ParameterSpec{.name = name + of,
                      .placement = parallel.replicated_for_shards(global),
                      .initial = Initial::normal(deviation),
                      .role = role,
                      .keeps_fp32 = keeps_fp32}));
  };
  weight_ = make(".weight", {experts, shape.hidden}, shape.init_deviation, ParameterRole::router,
                 shape_.fp32_router_weight);
  if (shape_.biases) {
    bias_ = make(".bias", {experts}, shape.init_deviation, ParameterRole::vector, false);
  }
  if (shape_.bias) {
    expert_bias_ = make(".expert_bias", {experts}, 0, ParameterRole::expert_bias, true);
  }
}

std::vector<std::shared_ptr<Parameter>> Router::parameters() const {
  if (!bias_) return {weight_.parameter()};
  return {weight_.parameter(), bias_.parameter()};
}

std::vector<std::shared_ptr<Parameter>> Router::buffers() const {
  if (!expert_bias_) return {};
  return {expert_bias_.parameter()};
}

Tensor Router::product_weight(Context& context, const MicroBatch& batch) const {
  const Tensor weight = weight_.acquire(batch.version).tensor();
  return shape_.fp32_router ? as(context, weight, DType::f32) : weight;
}

ExpertRows Router::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                           std::int64_t first_row, Saved& saved) const {
  saved.x = x;
  saved.first_row = first_row;
  ExpertRows rows = choose(context, batch, saved);
  add_losses(context, batch, saved);
  return rows;
}

void Router::score(Context& context, const MicroBatch& batch, Saved& saved) const {
  if (saved.x.dim(0) > 0) {
    const Tensor weight = product_weight(context, batch);
    gemm(context, {.a = as(context, saved.x, weight.dtype()),
                   .b = weight,
                   .c = saved.logits,
                   .transpose_b = true});
    if (bias_) {
      const Tensor bias = bias_.acquire(batch.version).tensor();
      add_bias(context, saved.logits, as(context, bias, DType::f32), saved.logits);
    }
  }
  if (shape_.balanced_routing) {
    const Shape shape = saved.logits.shape();
    saved.logits = context.from_host<float>(
        shape, balanced_logits(shape_.router, shape.dim(0), saved.first_row), Category::activation);
  }
}

ExpertRows Router::choose(Context& context, const MicroBatch& batch, Saved& saved) const {
  const RouterShape& router = shape_.router;
  const std::int64_t rows = saved.x.dim(0);
  const auto make = [&](const Shape& shape, DType dtype) {
    return context.empty(shape, dtype, Category::activation);
  };
  saved.logits = make({rows, router.experts}, DType::f32);
  saved.chosen = make({rows, router.topk}, DType::i32);
  saved.weights = make({rows, router.topk}, DType::f32);
  score(context, batch, saved);  // a rank without rows takes part in all that follows
  route(context, {.shape = router,
                  .logits = saved.logits,
                  .bias = expert_bias_ ? expert_bias_.acquire(batch.version).tensor() : Tensor(),
                  .experts = saved.chosen,
                  .weights = saved.weights});
  ExpertRows sorted{make({router.experts}, DType::i64), make({rows, router.topk}, DType::i32),
                    make({rows * router.topk}, DType::i32)};
  sort_by_expert(context, {.experts = within_capacity(context, batch, saved),
                           .ends = sorted.ends,
                           .rows = sorted.rows,
                           .pairs = sorted.pairs});
  if (batch.training && shape_.capacity_factor > 0) {
    batch.statistics.count(context, router_statistic::kept_pairs, layer_,
                           sorted.ends.flat(router.experts - 1, 1));
  }
  return sorted;
}

Tensor Router::within_capacity(Context& context, const MicroBatch& batch,
                               const Saved& saved) const {
  if (!batch.training || shape_.capacity_factor == 0) return saved.chosen;
  if (parallel_.holds_pieces()) return within_capacity_of_pieces(context, batch, saved);
  const std::int64_t capacity = shape_.capacity(batch.sequence);
  const auto drop = [&](const Tensor& counts) {
    Tensor kept = context.empty(saved.chosen.shape(), DType::i32, Category::activation);
    drop_pairs(context, {.experts = saved.chosen,
                         .counts = counts,
                         .capacity = capacity,
                         .sequence = batch.sequence,
                         .first_row = saved.first_row,
                         .kept = kept});
    return kept;
  };
  const Tensor counts =
      context.empty({batch.batch, shape_.router.experts}, DType::i64, Category::activation);
  fill(context, counts, 0);
  Tensor kept = drop(counts);
  if (!parallel_.shares_tokens()) return kept;
  // The first pass has counted this rank's pairs; the second begins behind those of the ranks
  // before.
  return drop(parallel_.sum_of_ranks_before(context, counts));
}

Tensor Router::within_capacity_of_pieces(Context& context, const MicroBatch& batch,
                                         const Saved& saved) const {
  const auto pieces = parallel_.own_pieces(batch.sample_positions());
  const std::int64_t experts = shape_.router.experts, rows = saved.chosen.dim(0);
  const Tensor kept = context.empty(saved.chosen.shape(), DType::i32, Category::activation);
  // Each piece of each sample by itself; counts: (2, B, E).
  const auto drop = [&](const Tensor& counts) {
    for (std::int64_t i = 0; i < 2 * batch.batch; ++i) {
      const SequencePiece& piece = pieces[static_cast<std::size_t>(i / batch.batch)];
      const std::int64_t begin = i % batch.batch * batch.sequence + piece.local;
      const std::int64_t from = std::max(begin, saved.first_row);
      const std::int64_t count = std::min(begin + piece.count, saved.first_row + rows) - from;
      if (count <= 0) continue;
      drop_pairs(context, {.experts = saved.chosen.rows(from - saved.first_row, count),
                           .counts = counts.flat(i * experts, experts).view({1, experts}),
                           .capacity = shape_.capacity(batch.sample_positions()),
                           .sequence = piece.count,
                           .first_row = from - begin,
                           .kept = kept.rows(from - saved.first_row, count)});
    }
  };
  const Tensor counts = context.empty({2, batch.batch, experts}, DType::i64, Category::activation);
  fill(context, counts, 0);
  drop(counts);  // counts this rank's pairs
  drop(parallel_.sum_before_pieces(context, counts));
  return kept;
}

std::int64_t Router::balanced_tokens(const MicroBatch& batch) const {
  return shape_.balances_micro_batch ? batch.batch * batch.sequence : batch.sequence;
}

// The sums over the choices of a micro-batch (RoutingSumsArgs). The tokens of a set, a sample or
// the micro-batch, are balanced together.
struct Router::Sums {
  Tensor counts, probabilities;  // (sets, E) i64 and f64
  Tensor squares, entropies;     // (T'); entropies if they are reported
  Tensor reported;               // (E) i64, for load_balancing_loss
};

void Router::add_losses(Context& context, const MicroBatch& batch, Saved& saved) const {
  const bool balances = shape_.balancing_loss > 0, records = batch.statistics.is_recording();
  // The z-loss has its gradient from the logits alone.
  if (!batch.training || (!balances && !expert_bias_ && !records)) return;
  const Sums sums = sum(context, batch, saved);
  if (expert_bias_) saved.counts = sums.counts;
  if (records) report(context, batch, sums);
  if (balances) add_balancing_loss(context, batch, sums, saved);
}

Router::Sums Router::sum(Context& context, const MicroBatch& batch, const Saved& saved) const {
  const std::int64_t tokens = balanced_tokens(batch), own = saved.logits.dim(0);
  const Shape per_set{batch.batch * batch.sequence / tokens, shape_.router.experts};
  const auto make = [&](const Shape& shape, DType dtype) {
    return context.empty(shape, dtype, Category::activation);
  };
  Sums sums{.counts = make(per_set, DType::i64),
            .probabilities = make(per_set, DType::f64),
            .squares = make({own}, DType::f32)};
  if (batch.statistics.is_recording()) {
    sums.entropies = make({own}, DType::f32);
    if (reports_load_balancing_loss(shape_)) {
      sums.reported = make({shape_.router.experts}, DType::i64);
    }
  }
  routing_sums(context, {.shape = shape_.router,
                         .logits = saved.logits,
                         .experts = saved.chosen,
                         .counts = sums.counts,
                         .probabilities = sums.probabilities,
                         .squares = sums.squares,
                         .entropies = sums.entropies,
                         .reported = sums.reported,
                         .sequence = tokens,
                         .first_row = saved.first_row});
  return sums;
}

void Router::report(Context& context, const MicroBatch& batch, const Sums& sums) const {
  for (std::int64_t i = 0; i < sums.counts.dim(0); ++i) {
    batch.statistics.count(context, router_statistic::tokens_per_expert, layer_,
                           sums.counts.rows(i, 1).view({shape_.router.experts}));
  }
  batch.statistics.add(context, router_statistic::entropy, layer_, sums.entropies);
  if (sums.reported) {
    batch.statistics.count(context, router_statistic::probability_sums, layer_, sums.reported);
  }
  if (shape_.z_loss > 0) {
    scale(context, sums.squares, shape_.z_loss);
    batch.statistics.add(context, router_statistic::z_loss, layer_, sums.squares);
  }
}

void Router::add_balancing_loss(Context& context, const MicroBatch& batch, const Sums& sums,
                                Saved& saved) const {
  const auto make = [&](const Shape& shape, DType dtype) {
    return context.empty(shape, dtype, Category::activation);
  };
  const Shape per_set = sums.counts.shape();
  Tensor all = sums.counts;
  if (expert_bias_ && parallel_.shares_samples()) {  // the bias needs this rank's own
    all = make(per_set, DType::i64);
    copy(context, sums.counts, all);
  }
  parallel_.sum_of_samples(context, all);
  parallel_.sum_of_samples(context, sums.probabilities);
  saved.shares = make(per_set, DType::f32);
  const Tensor losses = make({per_set.dim(0)}, DType::f64);
  const RouterShape& router = shape_.router;
  const std::int64_t tokens =
      balanced_tokens(batch) / batch.sequence * batch.sample_positions();  // on all ranks
  // Each token counts the loss of its set once.
  balance(context, {.counts = all,
                    .probabilities = sums.probabilities,
                    .factor = static_cast<double>(shape_.balancing_loss) *
                              static_cast<double>(router.experts) /
                              static_cast<double>(router.topk * tokens),
                    .shares = saved.shares,
                    .losses = losses});
  if (parallel_.counts_samples()) {
    batch.statistics.add(context, shape_.balancing_name(), layer_, losses);
  }
}

void Router::backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_weights,
                            const Tensor& grad_x, Saved& saved) const {
  saved.grad_logits = context.empty(saved.logits.shape(), DType::f32, Category::activation);
  if (saved.shares) scale(context, saved.shares, batch.auxiliary_scale);
  route_backward(context, {.shape = shape_.router,
                           .logits = saved.logits,
                           .experts = saved.chosen,
                           .grad_weights = grad_weights.view(saved.weights.shape()),
                           .grad_probabilities = saved.shares,
                           .sequence = balanced_tokens(batch),
                           .first_row = saved.first_row,
                           .grad_square = shape_.z_loss * batch.auxiliary_scale,
                           .grad_logits = saved.grad_logits});
  const Tensor weight = product_weight(context, batch);
  // A product's operands have one type.
  saved.grad_logits = as(context, saved.grad_logits, weight.dtype());
  if (grad_x.dim(0) == 0) return;
  const bool alike = grad_x.dtype() == weight.dtype();
  const Tensor grad =
      alike ? grad_x : context.empty(grad_x.shape(), DType::f32, Category::activation);
  gemm(context, {.a = saved.grad_logits, .b = weight, .c = grad, .accumulate = alike});
  if (!alike) add(context, as(context, grad, grad_x.dtype()), grad_x);
}

void Router::release(Saved& saved) {
  saved.logits = saved.chosen = saved.weights = saved.shares = Tensor();
}

void Router::backward_weight(Context& context, const Saved& saved) const {
  if (saved.x.dim(0) > 0) {
    // A gradient of 16 bits takes products of its own type.
    const DType to = shape_.fp32_router && weight_.gradient(context).dtype() == DType::f32
                         ? DType::f32
                         : saved.x.dtype();
    weight_.add_product(context, as(context, saved.grad_logits, to), as(context, saved.x, to));
    if (bias_) bias_backward(context, saved.grad_logits, bias_.gradient(context));
  }
  const std::int64_t experts = shape_.router.experts;
  for (std::int64_t i = 0; expert_bias_ && i < saved.counts.dim(0); ++i) {
    add(context, saved.counts.rows(i, 1).view({experts}), expert_bias_.gradient(context));
  }
}

}  // namespace trident

#include "models/experts.h"

#include <numeric>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/experts.h"
#include "kernels/gemm.h"
#include "kernels/grouped_bias.h"
#include "kernels/grouped_gemm.h"
#include "kernels/routing.h"
#include "models/balanced_routing.h"

namespace trident {
namespace {

Weight parameter(std::string name, Placement placement, float deviation, ParameterRole role,
                 bool keeps_fp32 = false) {
  return Weight(std::make_shared<Parameter>(ParameterSpec{.name = std::move(name),
                                                          .placement = std::move(placement),
                                                          .initial = Initial::normal(deviation),
                                                          .role = role,
                                                          .keeps_fp32 = keeps_fp32}));
}

// x as `dtype`.
Tensor as(Context& context, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor converted = context.empty(x.shape(), dtype, Category::activation);
  copy(context, x, converted);
  return converted;
}

// The blocks of the columns of gates and up values, which ranks split.
std::vector<std::int64_t> unit_blocks(const ExpertsShape& shape) {
  if (shape.unit.interleaved) return {2 * shape.ffn};
  return {shape.ffn, shape.ffn};
}

// The up- or the down-projections, sharded along the experts' width.
Weight matrices(const ParallelContext& parallel, const TransformerShape& shape,
                const std::string& name, float deviation, bool up) {
  const ExpertsShape& experts = shape.experts;
  const std::int64_t width = up ? 2 * experts.ffn : experts.ffn;
  const std::int64_t in = up ? shape.hidden : width, out = up ? width : shape.hidden;
  const Shape global = experts.input_first ? Shape{experts.router.experts, in, out}
                                           : Shape{experts.router.experts, out, in};
  const int sharded = up == experts.input_first ? 2 : 1;
  const auto blocks = up ? unit_blocks(experts) : std::vector<std::int64_t>{experts.ffn};
  return parameter(name, parallel.experts(global, sharded, blocks), deviation,
                   ParameterRole::matrix);
}

// Sums for Experts::derive().
constexpr const char *kept_pairs = "kept_pairs", *probability_sums = "probability_sums";

// transformers has a balancing loss of softmax routers alone.
bool has_batch_loss(const ExpertsShape& shape) {
  return shape.router.score == RouterScore::softmax;
}

}  // namespace

struct Experts::Saved final : SavedActivations {
  Tensor x;                        // (T', H): the rows that this rank sends
  Tensor logits, chosen, weights;  // (T', E), (T', K), (T', K)
  Tensor shares;                   // (B, E), with a balancing loss; (1, E) for a micro-batch
  Tensor counts;                   // (1 or B, E) i64: tokens of each expert
  std::optional<TokenExchange> exchange;
  Tensor rows;                  // (Q, H), where other ranks sent some
  Tensor row_weights;           // (Q)
  Tensor pre_activation;        // (Q, 2F), then its gradient
  Tensor gradient, activation;  // (Q, H), (Q, F): operands of the down gradient
  Tensor grad_logits;           // (T', E)
  SharedExpert::Saved shared;
};

Experts::Experts(const ParallelContext& parallel, const TransformerShape& shape,
                 const std::string& name, std::int64_t layer)
    : parallel_(parallel),
      shape_(shape.experts),
      layer_(layer),
      router_(parameter(name + ".router.weight",
                        parallel.replicated_for_shards({shape_.router.experts, shape.hidden}),
                        shape.init_deviation, ParameterRole::router, shape_.fp32_router_weight)),
      up_(matrices(parallel, shape, name + ".experts.up", shape.init_deviation, true)),
      down_(matrices(parallel, shape, name + ".experts.down", shape.output_deviation(), false)) {
  if (shape_.biases) {
    const std::int64_t count = shape_.router.experts;
    const auto bias = [&](const char* of, Placement placement, float deviation) {
      return parameter(name + of, std::move(placement), deviation, ParameterRole::vector);
    };
    router_bias_ =
        bias(".router.bias", parallel.replicated_for_shards({count}), shape.init_deviation);
    up_bias_ = bias(".experts.up_bias",
                    parallel.experts({count, 2 * shape_.ffn}, 1, unit_blocks(shape_)), 0);
    // One of the ranks that share an expert adds it.
    Placement placement = parallel.experts({count, shape.hidden});
    if (parallel.ranks_of_expert() > 1) placement.partial.push_back(Group::expert_tensor);
    down_bias_ = bias(".experts.down_bias", std::move(placement), 0);
  }
  if (shape_.bias) {
    bias_ = parameter(name + ".router.expert_bias",
                      parallel.replicated_for_shards({shape_.router.experts}), 0,
                      ParameterRole::expert_bias, true);
  }
  if (shape_.shared_ffn > 0) {
    shared_ = std::make_unique<SharedExpert>(parallel, shape, name);
  }
}

void Experts::derive(const ExpertsShape& shape, double tokens, StepStatistics& all) {
  auto& lists = all.statistics;
  const auto counts = lists.find("tokens_per_expert");
  if (counts == lists.end()) return;
  if (auto kept = lists.extract(kept_pairs)) {
    auto& dropped = lists["dropped_tokens"];
    for (const std::vector<double>& layer : kept.mapped()) {
      const std::vector<double>& chosen = counts->second[dropped.size()];
      dropped.emplace_back(layer);
      for (double& pairs : dropped.back()) {
        pairs = std::accumulate(chosen.begin(), chosen.end(), 0.0) - pairs;
      }
    }
  }
  if (const auto sums = lists.extract(probability_sums)) {
    const auto experts = static_cast<std::size_t>(shape.router.experts);
    std::vector<double> chosen(experts), probabilities(experts);
    for (const std::int64_t layer : shape.layers) {
      for (std::size_t e = 0; e < experts; ++e) {
        chosen[e] += counts->second[static_cast<std::size_t>(layer)][e];
        probabilities[e] += sums.mapped()[static_cast<std::size_t>(layer)][e] * probability_unit;
      }
    }
    const double rows = tokens * static_cast<double>(shape.layers.size());
    const double sum = std::inner_product(chosen.begin(), chosen.end(), probabilities.begin(), 0.0);
    lists["load_balancing_loss"] = {{static_cast<double>(experts) * sum / (rows * rows)}};
  }
}

std::vector<Statistic> Experts::statistics(const ExpertsShape& shape) {
  std::vector<Statistic> list;
  for (const std::int64_t layer : shape.layers) {
    list.push_back({"tokens_per_expert", StatisticKind::count, layer, shape.router.experts});
    list.push_back({"router_entropy", StatisticKind::mean, layer});
    if (shape.capacity_factor > 0) list.push_back({kept_pairs, StatisticKind::count, layer});
    if (has_batch_loss(shape)) {
      list.push_back({probability_sums, StatisticKind::count, layer, shape.router.experts});
    }
    if (shape.balancing_loss > 0) {
      list.push_back({shape.balancing_name(), StatisticKind::auxiliary_loss, layer});
    }
    if (shape.z_loss > 0) list.push_back({"z_loss", StatisticKind::auxiliary_loss, layer});
  }
  return list;
}

std::vector<std::shared_ptr<Parameter>> Experts::parameters() const {
  std::vector<std::shared_ptr<Parameter>> list;
  for (const Weight* weight : {&router_, &router_bias_, &up_, &up_bias_, &down_, &down_bias_}) {
    if (*weight) list.push_back(weight->parameter());
  }
  if (shared_) {
    for (auto& one : shared_->parameters()) list.push_back(std::move(one));
  }
  return list;
}

std::vector<std::shared_ptr<Parameter>> Experts::buffers() const {
  if (!bias_) return {};
  return {bias_.parameter()};
}

Tensor Experts::router_weight(Context& context, const MicroBatch& batch) const {
  const Tensor weight = router_.acquire(batch.version).tensor();
  return shape_.fp32_router ? as(context, weight, DType::f32) : weight;
}

Tensor Experts::share(const Tensor& x) const {
  const ParallelContext::Range rows = parallel_.rows_to_send(x);
  return x.rows(rows.begin, rows.count);
}

Tensor Experts::within_capacity(Context& context, const MicroBatch& batch, const Tensor& x,
                                const Tensor& chosen) const {
  if (!batch.training || shape_.capacity_factor == 0) return chosen;
  const std::int64_t capacity = shape_.capacity(batch.sequence);
  const auto drop = [&](const Tensor& counts) {
    Tensor kept = context.empty(chosen.shape(), DType::i32, Category::activation);
    drop_pairs(context, {.experts = chosen,
                         .counts = counts,
                         .capacity = capacity,
                         .sequence = batch.sequence,
                         .first_row = parallel_.first_row_to_send(x),
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

ExpertRows Experts::choose(Context& context, const MicroBatch& batch, const Tensor& x,
                           const Tensor& own, Saved& saved) const {
  const RouterShape& router = shape_.router;
  const std::int64_t rows = own.dim(0);
  const auto make = [&](Shape shape, DType dtype) {
    return context.empty(shape, dtype, Category::activation);
  };
  saved.x = own;
  saved.logits = make({rows, router.experts}, DType::f32);
  saved.chosen = make({rows, router.topk}, DType::i32);
  saved.weights = make({rows, router.topk}, DType::f32);
  if (rows > 0) {  // a rank without rows takes part in all that follows
    const Tensor weight = router_weight(context, batch);
    gemm(context, {.a = as(context, own, weight.dtype()),
                   .b = weight,
                   .c = saved.logits,
                   .transpose_b = true});
    if (router_bias_) {
      const Tensor bias = router_bias_.acquire(batch.version).tensor();
      add_bias(context, saved.logits, as(context, bias, DType::f32), saved.logits);
    }
  }
  if (shape_.balanced_routing) {
    saved.logits = context.from_host<float>(
        {rows, router.experts}, balanced_logits(router, rows, parallel_.first_row_to_send(x)),
        Category::activation);
  }
  route(context, {.shape = router,
                  .logits = saved.logits,
                  .bias = bias_ ? bias_.acquire(batch.version).tensor() : Tensor(),
                  .experts = saved.chosen,
                  .weights = saved.weights});
  ExpertRows sorted{make({router.experts}, DType::i64), make({rows, router.topk}, DType::i32),
                    make({rows * router.topk}, DType::i32)};
  sort_by_expert(context, {.experts = within_capacity(context, batch, x, saved.chosen),
                           .ends = sorted.ends,
                           .rows = sorted.rows,
                           .pairs = sorted.pairs});
  if (batch.training && shape_.capacity_factor > 0) {
    batch.statistics.count(context, kept_pairs, layer_, sorted.ends.flat(router.experts - 1, 1));
  }
  return sorted;
}

void Experts::balance(Context& context, const MicroBatch& batch, const Tensor& x,
                      Saved& saved) const {
  const bool balances = shape_.balancing_loss > 0;
  // The z-loss has its gradient from the logits alone.
  if (!batch.training || (!balances && !bias_ && !batch.statistics.is_recording())) return;
  const RouterShape& router = shape_.router;
  // The tokens that are balanced together are a sample or the micro-batch.
  const std::int64_t sets = shape_.balances_micro_batch ? 1 : batch.batch;
  const std::int64_t tokens = batch.batch * batch.sequence / sets;
  const Shape per_sample{sets, router.experts};
  const auto make = [&](Shape shape, DType dtype) {
    return context.empty(shape, dtype, Category::activation);
  };
  const std::int64_t own = saved.logits.dim(0);
  const Tensor counts = make(per_sample, DType::i64), probabilities = make(per_sample, DType::f64),
               squares = make({own}, DType::f32);
  Tensor entropies, reported;
  if (batch.statistics.is_recording()) {
    entropies = make({own}, DType::f32);
    if (has_batch_loss(shape_)) reported = make({router.experts}, DType::i64);
  }
  routing_sums(context, {.shape = router,
                         .logits = saved.logits,
                         .experts = saved.chosen,
                         .counts = counts,
                         .probabilities = probabilities,
                         .squares = squares,
                         .entropies = entropies,
                         .reported = reported,
                         .sequence = tokens,
                         .first_row = parallel_.first_row_to_send(x)});
  if (bias_) saved.counts = counts;
  for (std::int64_t b = 0; b < sets && batch.statistics.is_recording(); ++b) {
    batch.statistics.count(context, "tokens_per_expert", layer_,
                           counts.rows(b, 1).view({router.experts}));
  }
  if (entropies) batch.statistics.add(context, "router_entropy", layer_, entropies);
  if (reported) batch.statistics.count(context, probability_sums, layer_, reported);
  if (shape_.z_loss > 0 && batch.statistics.is_recording()) {
    scale(context, squares, shape_.z_loss);
    batch.statistics.add(context, "z_loss", layer_, squares);
  }
  if (!balances) return;
  Tensor all = counts;
  if (bias_ && parallel_.shares_tokens()) {  // the bias needs this rank's own
    all = make(per_sample, DType::i64);
    copy(context, counts, all);
  }
  parallel_.sum_of_shares(context, all);
  parallel_.sum_of_shares(context, probabilities);
  saved.shares = make(per_sample, DType::f32);
  const Tensor losses = make({sets}, DType::f64);
  // Each token counts the loss of its set once.
  trident::balance(context, {.counts = all,
                             .probabilities = probabilities,
                             .factor = static_cast<double>(shape_.balancing_loss) *
                                       static_cast<double>(router.experts) /
                                       static_cast<double>(router.topk * tokens),
                             .shares = saved.shares,
                             .losses = losses});
  if (parallel_.counts_rows(1, 1)) {
    batch.statistics.add(context, shape_.balancing_name(), layer_, losses);
  }
}

bool Experts::adds_down_bias() const {
  return down_bias_ && parallel_.exchange_rank() % parallel_.ranks_of_expert() == 0;
}

void Experts::multiply(Context& context, const MicroBatch& batch, const Weight& weight,
                       const Tensor& x, const Tensor& y, const Saved& saved) const {
  grouped_gemm(context, {.a = x,
                         .b = weight.acquire(batch.version).tensor(),
                         .c = y,
                         .ends = saved.exchange->ends(),
                         .transpose_b = !shape_.input_first});
}

void Experts::multiply_gradient(Context& context, const MicroBatch& batch, const Weight& weight,
                                const Tensor& grad_y, const Tensor& grad_x,
                                const Saved& saved) const {
  grouped_gemm(context, {.a = grad_y,
                         .b = weight.acquire(batch.version).tensor(),
                         .c = grad_x,
                         .ends = saved.exchange->ends(),
                         .transpose_b = shape_.input_first});
}

void Experts::add_gradient(Context& context, const Weight& weight, const Tensor& grad_y,
                           const Tensor& x, const Saved& saved) const {
  const bool input_first = shape_.input_first;
  weight.add_grouped_product(context, input_first ? x : grad_y, input_first ? grad_y : x,
                             saved.exchange->ends());
}

Tensor Experts::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                        SavedActivationsPtr& kept) const {
  auto owned = std::make_unique<Saved>();
  Saved& saved = *owned;
  const Async async = hides_exchange() || context.shares_turns() ? Async::yes : Async::no;
  const Tensor y = parallel_.all_rows(context, x, [&](const Tensor& own) {
    const ExpertRows sorted = choose(context, batch, x, share(x), saved);
    balance(context, batch, x, saved);
    saved.exchange.emplace(context, parallel_, sorted);
    const TokenExchange& exchange = *saved.exchange;
    auto sent = exchange.dispatch(context, saved.x, shape_.router.topk, async);
    auto sent_weights =
        exchange.dispatch(context, saved.weights.view({saved.weights.numel(), 1}), 1, async);
    if (hides_exchange()) shared_->begin_forward(context, batch, x, saved.shared);
    const Tensor& rows = sent.arrived(context);
    if (parallel_.exchange_ranks() > 1) saved.rows = rows;  // else they are copied again
    const std::int64_t count = rows.dim(0), ffn = down_.dim(shape_.input_first ? 1 : 2);
    saved.row_weights = sent_weights.arrived(context).view({count});
    saved.pre_activation = context.empty({count, 2 * ffn}, x.dtype(), Category::activation);
    multiply(context, batch, up_, rows, saved.pre_activation, saved);
    if (up_bias_) {
      grouped_bias(context, {.bias = up_bias_.acquire(batch.version).tensor(),
                             .ends = saved.exchange->ends(),
                             .x = saved.pre_activation});
    }
    const Tensor hidden = context.empty({count, ffn}, x.dtype(), Category::activation);
    expert_activation(context, {.x = saved.pre_activation,
                                .weights = saved.row_weights,
                                .y = hidden,
                                .unit = shape_.unit});
    const Tensor out = context.empty({count, x.dim(1)}, x.dtype(), Category::activation);
    multiply(context, batch, down_, hidden, out, saved);
    if (adds_down_bias()) {
      grouped_bias(context, {.bias = down_bias_.acquire(batch.version).tensor(),
                             .weights = saved.row_weights,
                             .ends = saved.exchange->ends(),
                             .x = out});
    }
    auto back = exchange.give_back(context, out, async);
    if (hides_exchange()) shared_->end_forward(context, batch, x, saved.shared);
    exchange.combine(context, back, own);
  });
  if (shared_) {
    if (!hides_exchange()) {
      shared_->begin_forward(context, batch, x, saved.shared);
      shared_->end_forward(context, batch, x, saved.shared);
    }
    shared_->add_output(context, y, saved.shared);
  }
  kept = std::move(owned);
  return y;
}

Tensor Experts::backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                               SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  const RouterShape& router = shape_.router;
  const Async async = hides_exchange() || context.shares_turns() ? Async::yes : Async::no;
  const Tensor grad_x = parallel_.all_rows(context, grad_y, [&](const Tensor& own) {
    const TokenExchange& exchange = *saved.exchange;
    auto sent = exchange.dispatch(context, share(grad_y), router.topk, async);
    if (hides_exchange()) shared_->begin_backward(context, batch, grad_y, saved.shared);
    saved.gradient = sent.arrived(context);
    const std::int64_t count = saved.gradient.dim(0);
    saved.activation = context.empty({count, saved.pre_activation.dim(1) / 2}, grad_y.dtype(),
                                     Category::activation);
    multiply_gradient(context, batch, down_, saved.gradient, saved.activation, saved);
    const Tensor grad_row_weights = context.empty({count}, DType::f32, Category::activation);
    expert_activation_backward(context, {.x = saved.pre_activation,
                                         .weights = saved.row_weights,
                                         .grad_y = saved.activation,
                                         .grad_x = saved.pre_activation,
                                         .grad_weights = grad_row_weights,
                                         .y = saved.activation,
                                         .unit = shape_.unit});
    if (adds_down_bias()) {
      grouped_bias_backward(context, {.bias = down_bias_.acquire(batch.version).tensor(),
                                      .ends = saved.exchange->ends(),
                                      .grad = saved.gradient,
                                      .grad_weights = grad_row_weights});
    }
    const Tensor grad_rows =
        context.empty(saved.gradient.shape(), grad_y.dtype(), Category::activation);
    multiply_gradient(context, batch, up_, saved.pre_activation, grad_rows, saved);
    auto back = exchange.give_back(context, grad_rows, async);
    auto back_weights = exchange.give_back(context, grad_row_weights.view({count, 1}), async);
    if (hides_exchange()) shared_->end_backward(context, batch, saved.shared);
    exchange.combine(context, back, own);
    const Tensor grad_weights =
        context.empty({saved.weights.numel(), 1}, DType::f32, Category::activation);
    exchange.combine_pairs(context, back_weights, grad_weights);
    saved.grad_logits = context.empty(saved.logits.shape(), DType::f32, Category::activation);
    if (saved.shares) scale(context, saved.shares, batch.loss_scale);
    route_backward(context, {.shape = router,
                             .logits = saved.logits,
                             .experts = saved.chosen,
                             .grad_weights = grad_weights.view(saved.weights.shape()),
                             .grad_probabilities = saved.shares,
                             .sequence = shape_.balances_micro_batch ? batch.batch * batch.sequence
                                                                     : batch.sequence,
                             .first_row = parallel_.first_row_to_send(grad_y),
                             .grad_square = shape_.z_loss * batch.loss_scale,
                             .grad_logits = saved.grad_logits});
    const Tensor weight = router_weight(context, batch);
    // A product's operands have one type.
    saved.grad_logits = as(context, saved.grad_logits, weight.dtype());
    if (own.dim(0) == 0) return;
    const bool alike = own.dtype() == weight.dtype();
    const Tensor grad = alike ? own : context.empty(own.shape(), DType::f32, Category::activation);
    gemm(context, {.a = saved.grad_logits, .b = weight, .c = grad, .accumulate = alike});
    if (!alike) add(context, as(context, grad, own.dtype()), own);
  });
  saved.logits = saved.chosen = saved.weights = saved.shares = Tensor();
  if (!adds_down_bias()) saved.row_weights = Tensor();
  if (shared_) {
    if (!hides_exchange()) {
      shared_->begin_backward(context, batch, grad_y, saved.shared);
      shared_->end_backward(context, batch, saved.shared);
    }
    shared_->add_gradient(context, grad_x, saved.shared);
  }
  return grad_x;
}

void Experts::backward_weight(Context& context, const MicroBatch& batch,
                              SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  const Tensor& ends = saved.exchange->ends();
  if (saved.x.dim(0) > 0) {
    // A gradient of 16 bits takes products of its own type.
    const DType to = shape_.fp32_router && router_.gradient(context).dtype() == DType::f32
                         ? DType::f32
                         : saved.x.dtype();
    router_.add_product(context, as(context, saved.grad_logits, to), as(context, saved.x, to));
    if (router_bias_) bias_backward(context, saved.grad_logits, router_bias_.gradient(context));
  }
  const std::int64_t experts = shape_.router.experts;
  for (std::int64_t i = 0; bias_ && i < saved.counts.dim(0); ++i) {
    add(context, saved.counts.rows(i, 1).view({experts}), bias_.gradient(context));
  }
  add_gradient(context, down_, saved.gradient, saved.activation, saved);
  if (adds_down_bias()) {
    grouped_bias_backward(context, {.weights = saved.row_weights,
                                    .ends = ends,
                                    .grad = saved.gradient,
                                    .grad_bias = down_bias_.gradient(context)});
  }
  const Tensor rows =
      saved.rows ? saved.rows : saved.exchange->dispatch(context, saved.x, shape_.router.topk).rows;
  add_gradient(context, up_, saved.pre_activation, rows, saved);
  if (up_bias_) {
    grouped_bias_backward(
        context,
        {.ends = ends, .grad = saved.pre_activation, .grad_bias = up_bias_.gradient(context)});
  }
  if (shared_) shared_->backward_weight(context, batch, saved.shared);
  kept.reset();
}

}  // namespace trident

#include "models/experts.h"

#include <optional>
#include <utility>

#include "parallel/token_exchange.h"

namespace trident {
namespace {

// The two halves of the shared expert's pass. With `overlaps` they run while rows are on their way
// to the experts and back, else one after the other behind the exchange.
template <class First, class Second>
class SharedPass {
 public:
  SharedPass(bool overlaps, First first, Second second)
      : overlaps_(overlaps), first_(std::move(first)), second_(std::move(second)) {}
  void while_dispatched() const {
    if (overlaps_) first_();
  }
  void while_returned() const {
    if (overlaps_) second_();
  }
  void after_exchange() const {
    if (overlaps_) return;
    first_();
    second_();
  }

 private:
  bool overlaps_;
  First first_;
  Second second_;
};

}  // namespace

struct Experts::Saved final : SavedActivations {
  Router::Saved router;
  std::optional<TokenExchange> exchange;
  Tensor rows;  // (Q, H), where other ranks sent some
  GroupedMlp::Saved mlp;
  SharedExpert::Saved shared;
};

Experts::Experts(const ParallelContext& parallel, const TransformerShape& shape,
                 const std::string& name, std::int64_t layer)
    : parallel_(parallel),
      topk_(shape.experts.router.topk),
      router_(parallel, shape, name + ".router", layer),
      mlp_(parallel, shape, name + ".experts") {
  if (shape.experts.shared_ffn > 0) {
    shared_ = std::make_unique<SharedExpert>(parallel, shape, name);
  }
}

std::vector<std::shared_ptr<Parameter>> Experts::parameters() const {
  std::vector<std::shared_ptr<Parameter>> list = router_.parameters();
  for (auto& one : mlp_.parameters()) list.push_back(std::move(one));
  if (shared_) {
    for (auto& one : shared_->parameters()) list.push_back(std::move(one));
  }
  return list;
}

std::vector<std::shared_ptr<Parameter>> Experts::buffers() const {
  return router_.buffers();
}

Async Experts::exchange_async(const Context& context) const {
  return hides_exchange() || context.shares_turns() ? Async::yes : Async::no;
}

Tensor Experts::share(const Tensor& x) const {
  const ParallelContext::Range rows = parallel_.rows_to_send(x);
  return x.rows(rows.begin, rows.count);
}

Tensor Experts::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                        SavedActivationsPtr& kept) const {
  auto owned = std::make_unique<Saved>();
  Saved& saved = *owned;
  const Async async = exchange_async(context);
  const SharedPass shared(
      hides_exchange(), [&] { shared_->begin_forward(context, batch, x, saved.shared); },
      [&] { shared_->end_forward(context, batch, x, saved.shared); });
  const Tensor y = parallel_.all_rows(context, x, [&](const Tensor& own) {
    const ExpertRows sorted =
        router_.forward(context, batch, share(x), parallel_.first_row_to_send(x), saved.router);
    const TokenExchange& exchange = saved.exchange.emplace(context, parallel_, sorted);
    saved.mlp.ends = exchange.ends();
    auto sent = exchange.dispatch(context, saved.router.x, topk_, async);
    const Tensor weights = saved.router.weights.view({saved.router.weights.numel(), 1});
    auto sent_weights = exchange.dispatch(context, weights, 1, async);
    shared.while_dispatched();
    const Tensor& rows = sent.arrived(context);
    if (parallel_.exchange_ranks() > 1) saved.rows = rows;  // else they are copied again
    saved.mlp.row_weights = sent_weights.arrived(context).view({rows.dim(0)});
    const Tensor activation = mlp_.forward_up(context, batch, rows, saved.mlp);
    const Tensor out = mlp_.forward_down(context, batch, activation, saved.mlp);
    auto back = exchange.give_back(context, out, async);
    shared.while_returned();
    exchange.combine(context, back, own);
  });
  if (shared_) {
    shared.after_exchange();
    shared_->add_output(context, y, saved.shared);
  }
  kept = std::move(owned);
  return y;
}

Tensor Experts::backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                               SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  const Async async = exchange_async(context);
  const SharedPass shared(
      hides_exchange(), [&] { shared_->begin_backward(context, batch, grad_y, saved.shared); },
      [&] { shared_->end_backward(context, batch, saved.shared); });
  const Tensor grad_x = parallel_.all_rows(context, grad_y, [&](const Tensor& own) {
    const TokenExchange& exchange = *saved.exchange;
    auto sent = exchange.dispatch(context, share(grad_y), topk_, async);
    shared.while_dispatched();
    const Tensor grad_row_weights =
        mlp_.backward_down(context, batch, sent.arrived(context), saved.mlp);
    const Tensor grad_rows = mlp_.backward_up(context, batch, saved.mlp);
    auto back = exchange.give_back(context, grad_rows, async);
    auto back_weights =
        exchange.give_back(context, grad_row_weights.view({grad_row_weights.numel(), 1}), async);
    shared.while_returned();
    exchange.combine(context, back, own);
    const Tensor grad_weights =
        context.empty({saved.router.weights.numel(), 1}, DType::f32, Category::activation);
    exchange.combine_pairs(context, back_weights, grad_weights);
    router_.backward_input(context, batch, grad_weights, own, saved.router);
  });
  Router::release(saved.router);
  mlp_.release(saved.mlp);
  if (shared_) {
    shared.after_exchange();
    shared_->add_gradient(context, grad_x, saved.shared);
  }
  return grad_x;
}

void Experts::backward_weight(Context& context, const MicroBatch& batch,
                              SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  router_.backward_weight(context, saved.router);
  mlp_.backward_weight_down(context, saved.mlp);
  const Tensor rows =
      saved.rows ? saved.rows : saved.exchange->dispatch(context, saved.router.x, topk_).rows;
  mlp_.backward_weight_up(context, rows, saved.mlp);
  if (shared_) shared_->backward_weight(context, batch, saved.shared);
  kept.reset();
}

}  // namespace trident

#include "models/recomputed.h"

#include <utility>

#include "core/operation_trace.h"

namespace trident {

namespace {

// Operations of its scope are no FLOPs of the model.
class Repeats {
 public:
  explicit Repeats(OperationTrace* trace) : trace_(trace) { set(true); }
  ~Repeats() { set(false); }
  Repeats(const Repeats&) = delete;
  Repeats& operator=(const Repeats&) = delete;

 private:
  void set(bool repeats) {
    if (trace_ != nullptr) trace_->resume({trace_->place().action, repeats});
  }
  OperationTrace* trace_;
};

}  // namespace

struct Recomputed::Saved final : SavedActivations {
  Tensor x;  // until backward_input
  SavedActivationsPtr again;
};

Tensor Recomputed::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                           SavedActivationsPtr& kept) const {
  auto saved = std::make_unique<Saved>();
  saved->x = x;
  SavedActivationsPtr dropped;
  Tensor y = module_->forward(context, batch, x, dropped);
  kept = std::move(saved);
  return y;
}

Tensor Recomputed::backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                                  SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  MicroBatch again = batch;
  again.statistics = {};  // the first forward has reported them
  {
    const Repeats repeats(context.trace());
    module_->forward(context, again, std::exchange(saved.x, {}), saved.again);
  }
  return module_->backward_input(context, batch, grad_y, saved.again);
}

void Recomputed::backward_weight(Context& context, const MicroBatch& batch,
                                 SavedActivationsPtr& kept) const {
  module_->backward_weight(context, batch, static_cast<Saved&>(*kept).again);
  kept.reset();
}

}  // namespace trident

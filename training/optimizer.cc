#include "training/optimizer.h"

#include "core/error.h"
#include "kernels/elementwise.h"

namespace trident {

std::unique_ptr<UpdateRule> make_update_rule(const OptimizerConfig& config) {
  if (config.type == "AdamW") return make_adamw(config.params);
  if (config.type == "SGD") return make_sgd(config.params);
  throw RequestError("config: /optimizer/type: unknown optimizer " + config.type);
}

Optimizer::Optimizer(Context& context, const ParameterBuckets& buckets,
                     std::unique_ptr<UpdateRule> rule, bool takes_back)
    : rule_(std::move(rule)) {
  for (const Bucket& bucket : buckets.buckets()) {
    auto& state = state_.emplace_back();
    for (int i = 0; i < rule_->states(); ++i) {
      state.push_back(context.empty({bucket.count}, DType::f32, Category::optimizer));
      fill(context, state.back(), 0);
    }
    if (!takes_back) continue;
    auto& kept = kept_.emplace_back();
    for (int i = 0; i < rule_->states() + 1; ++i) {
      kept.push_back(context.empty({bucket.count}, DType::f32, Category::optimizer));
    }
  }
}

void Optimizer::keep(Context& context, const ParameterBuckets& buckets) {
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    copy(context, buckets.buckets()[i].master, kept_[i][0]);
    for (std::size_t s = 0; s < state_[i].size(); ++s) copy(context, state_[i][s], kept_[i][s + 1]);
  }
}

void Optimizer::take_back(Context& context, ParameterBuckets& buckets) {
  --steps_;
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    const Bucket& bucket = buckets.buckets()[i];
    copy(context, kept_[i][0], bucket.master);
    // Rounded as every update rounds them.
    if (buckets.dtype() != DType::f32) copy(context, bucket.master, bucket.shard);
    for (std::size_t s = 0; s < state_[i].size(); ++s) copy(context, kept_[i][s + 1], state_[i][s]);
  }
}

void Optimizer::step(Context& context, ParameterBuckets& buckets, float learning_rate,
                     float gradient_scale) {
  ++steps_;
  for (std::size_t i = 0; i < buckets.buckets().size(); ++i) {
    const Bucket& bucket = buckets.buckets()[i];
    const bool mixed = buckets.dtype() != DType::f32;
    for (const ParameterSegment& segment : segments(bucket.layout, bucket.begin, bucket.count)) {
      const std::int64_t local = segment.begin - bucket.begin;
      UpdateArgs args{.weight = bucket.master.flat(local, segment.count),
                      .gradient = bucket.gradient.flat(local, segment.count),
                      .model_weight = mixed ? bucket.shard.flat(local, segment.count) : Tensor(),
                      .learning_rate = learning_rate,
                      .gradient_scale = gradient_scale,
                      .decays = segment.parameter->spec().decays(),
                      .step = steps_};
      for (const Tensor& state : state_[i]) args.state.push_back(state.flat(local, segment.count));
      rule_->update(context, args);
    }
  }
}

}  // namespace trident

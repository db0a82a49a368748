// Optimizers update flat ranges of fp32 master weights; they know nothing of layouts. A new one is
// one small file that makes an UpdateRule, and a line in optimizer.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/config.h"
#include "core/context.h"
#include "parallel/data/buckets.h"

namespace trident {

// Equally long flat views, fp32 but for model_weight (bf16, undefined in fp32 training).
struct UpdateArgs {
  Tensor weight, gradient, model_weight;
  std::vector<Tensor> state;  // as many as UpdateRule::states()
  float learning_rate = 0;
  float gradient_scale = 1;  // clipping
  bool decays = true;        // weight decay applies
  std::int64_t step = 1;     // updates so far, this one included
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual int states() const = 0;  // fp32 values kept for each weight, zero at first
  virtual void update(Context&, const UpdateArgs&) const = 0;
};

std::unique_ptr<UpdateRule> make_adamw(const OptimizerParams&);
std::unique_ptr<UpdateRule> make_sgd(const OptimizerParams&);
std::unique_ptr<UpdateRule> make_update_rule(const OptimizerConfig&);

// The optimizer of one rank: state for the part of each bucket that the rank updates.
class Optimizer {
 public:
  // `takes_back`: memory for as much again as weights and state take, for keep().
  Optimizer(Context&, const ParameterBuckets&, std::unique_ptr<UpdateRule>,
            bool takes_back = false);
  // Updates the master weights and the model weights of this rank's part.
  void step(Context&, ParameterBuckets&, float learning_rate, float gradient_scale);
  std::int64_t steps() const { return steps_; }

  // Copies master weights and state, for the next step to be taken back to the bit.
  void keep(Context&, const ParameterBuckets&);
  // Undoes the step after keep(); model weights too, of this rank's part.
  void take_back(Context&, ParameterBuckets&);

 private:
  std::unique_ptr<UpdateRule> rule_;
  std::vector<std::vector<Tensor>> state_;  // [bucket][state], each of the bucket's `count`
  std::vector<std::vector<Tensor>> kept_;   // [bucket][master, then state]
  std::int64_t steps_ = 0;
};

}  // namespace trident

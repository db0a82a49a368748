// Optimizers update flat stretches of fp32 master weights; which stretch is whose, they are told. A
// new one is one small file that makes an UpdateRule, declared beside its row in
// engine/optimizer/optimizer_registry.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/context.h"
#include "parallel/process_group.h"
#include "parallel/zero/buckets.h"
#include "settings/config.h"

namespace trident {

// What a rank updates of one parameter: elements [begin, begin + count) of its flat local shape,
// perhaps none (ZeRO). For sums over a whole parameter each data-parallel rank counts
// [own_begin, own_begin + own_count) of them, so that all count each element once; these are cut
// alike in all ZeRO stages.
struct UpdateRange {
  const Parameter* parameter = nullptr;
  std::int64_t begin = 0, count = 0;
  std::int64_t own_begin = 0, own_count = 0;
};
// Of every parameter of a bucket, on the rank at `place` of those who share it.
std::vector<UpdateRange> update_ranges(const BucketLayout&, int zero_stage, int place);

struct UpdatePart {
  UpdateRange range;
  Tensor weight;              // (count) fp32
  Tensor gradient;            // (count) fp32, or the 16-bit type that gradients are added up in
  Tensor model_weight;        // (count) bf16 or fp16; undefined in fp32 training
  std::vector<Tensor> state;  // as UpdateRule::states() says
  // Of the parameter's group (optimizer.param_groups).
  double lr_mult = 1;
  std::optional<double> weight_decay = {};

  // The weight decay, `usual` being that of parameters that decay and are in no group.
  double decay(double usual) const {
    return weight_decay.value_or(range.parameter->spec().decays() ? usual : 0);
  }
};

struct UpdateStep {
  float learning_rate = 0;
  float gradient_scale = 1;  // clipping, loss scaling
  std::int64_t step = 1;     // updates so far, this one included
  // Who else holds parts of these parameters: of their shards (undefined: nobody), and of the whole
  // ones, by the groups that cut any of them.
  ProcessGroup sharing = {};
  std::vector<ProcessGroup> cutting = {};

  // For rules that need sums over whole parameters: the one group that cuts, undefined where none
  // does. Throws Error where several do.
  const ProcessGroup& sharding_group() const;
};

// A tensor of state that a rule keeps for a parameter: as large as it, or one value for each row or
// column of it.
struct StateSpec {
  enum class Extent : std::uint8_t { elements, rows, columns };
  std::string name;  // as torch.optim calls it
  Extent extent = Extent::elements;
  DType dtype = DType::f32;
  float initial = 0;

  // Where it lies, for a parameter that lies there.
  Placement placement(const Placement& parameter) const;
  // Elements that a rank keeps for a range: of the range, or all rows or columns of its part.
  std::int64_t count(const UpdateRange& range) const;
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // What it keeps for a parameter.
  virtual std::vector<StateSpec> states(const ParameterSpec&) const = 0;
  // Collective over the step's groups where the rule needs more than its elements.
  virtual void update(Context&, const std::vector<UpdatePart>&, const UpdateStep&) const = 0;
};

// What a rank keeps of one state for a range.
struct KeptState {
  StateSpec spec;
  std::int64_t count = 0;  // elements
  std::int64_t bytes() const { return count * static_cast<std::int64_t>(size_of(spec.dtype)); }
};
std::vector<KeptState> kept_states(const UpdateRule&, const UpdateRange&);

// The state that is an average of the weights (moving_average.cc).
inline constexpr auto average_name = "ema";
// `rule`, and such an average; 0 < decay < 1.
std::unique_ptr<UpdateRule> with_average(std::unique_ptr<UpdateRule> rule, double decay);

// The optimizer of one rank: state for what the rank updates of each parameter.
class Optimizer {
 public:
  Optimizer(Context&, const ParameterBuckets&, std::unique_ptr<UpdateRule>, const Topology&,
            const std::vector<ParamGroup>& groups = {});
  // Updates the master weights and the model weights of this rank's part.
  void step(Context&, ParameterBuckets&, float learning_rate, float gradient_scale);
  std::int64_t steps() const { return steps_; }

  // Puts the average of the weights in the place of the master weights.
  void take_average(Context&, ParameterBuckets&);

  // Adds what the rule keeps, and the number of steps.
  void append_state(const ParameterBuckets&, const Topology&, State& into);

 private:
  std::unique_ptr<UpdateRule> rule_;
  // Parameters that the same ranks share are updated together.
  struct Together {
    DataGroups data;
    ProcessGroup sharing;
    std::vector<ProcessGroup> cutting;
    std::vector<std::size_t> buckets;
  };
  void add_bucket(const Topology& topology, const Bucket& bucket, std::size_t index);

  std::vector<Together> together_;
  std::vector<std::vector<UpdatePart>> parts_;  // by bucket; gradients are put in for a step
  std::int64_t steps_ = 0;
};

}  // namespace trident

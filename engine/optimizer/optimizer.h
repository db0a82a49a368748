// Optimizers. An UpdateRule updates contiguous ranges of fp32 master weights; the Optimizer says
// which parameter each range belongs to. A new optimizer is one small file that makes an
// UpdateRule, declared next to its row in engine/optimizer/optimizer_registry.cc. The rank's thread
// calls them.
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

// The elements [begin, begin + count) of a parameter's flat local shape that a rank updates,
// perhaps none (ZeRO). In sums over a complete parameter a data-parallel rank counts only
// [own_begin, own_begin + own_count), so that each element is counted once. The own ranges are the
// same in all ZeRO stages.
struct UpdateRange {
  const Parameter* parameter = nullptr;
  std::int64_t begin = 0, count = 0;
  std::int64_t own_begin = 0, own_count = 0;
};
// The ranges of every parameter of a bucket, on the rank at `place` of the group that shares it.
std::vector<UpdateRange> update_ranges(const BucketLayout&, int zero_stage, int place);

struct UpdatePart {
  UpdateRange range;
  Tensor weight;              // (count) fp32
  Tensor gradient;            // (count) fp32, or the 16-bit type in which gradients are accumulated
  Tensor model_weight;        // (count) bf16 or fp16; undefined in fp32 training
  std::vector<Tensor> state;  // in the order of UpdateRule::states()
  // The settings of the parameter's group (optimizer.param_groups).
  double lr_mult = 1;
  std::optional<double> weight_decay = {};

  // The weight decay. `usual` applies to parameters that decay and are in no group.
  double decay(double usual) const {
    return weight_decay.value_or(range.parameter->spec().decays() ? usual : 0);
  }
};

struct UpdateStep {
  float learning_rate = 0;
  float gradient_scale = 1;  // clipping, loss scaling
  std::int64_t step = 1;     // number of updates, this one included
  // The other ranks that hold parts of these parameters: `sharing` holds parts of the same shard
  // (undefined: no other rank), and `sharded_by` lists the groups that shard any of the complete
  // parameters.
  ProcessGroup sharing = {};
  std::vector<ProcessGroup> sharded_by = {};

  // For rules with sums over complete parameters: the one group that shards them, or an undefined
  // group if they are replicated. Throws Error if several groups shard them.
  const ProcessGroup& sharding_group() const;
};

// A state tensor that a rule keeps for a parameter: one value for each element, row or column.
struct StateSpec {
  enum class Extent : std::uint8_t { elements, rows, columns };
  std::string name;  // as in torch.optim
  Extent extent = Extent::elements;
  DType dtype = DType::f32;
  float initial = 0;

  // The placement of the state of a parameter with placement `parameter`.
  Placement placement(const Placement& parameter) const;
  // The elements that a rank keeps for a range: the range's, or all rows or columns of the rank's
  // part.
  std::int64_t count(const UpdateRange& range) const;
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // The state that the rule keeps for a parameter.
  virtual std::vector<StateSpec> states(const ParameterSpec&) const = 0;
  // Updates the parts. Collective over the step's groups if the rule needs more than its own
  // elements.
  virtual void update(Context&, const std::vector<UpdatePart>&, const UpdateStep&) const = 0;
};

// The elements that a rank keeps of one state for a range.
struct KeptState {
  StateSpec spec;
  std::int64_t count = 0;  // elements
  std::int64_t bytes() const { return count * static_cast<std::int64_t>(size_of(spec.dtype)); }
};
std::vector<KeptState> kept_states(const UpdateRule&, const UpdateRange&);

// The name of the state that averages the weights (moving_average.cc).
inline constexpr auto average_name = "ema";
// `rule` with a moving average of the weights; 0 < decay < 1.
std::unique_ptr<UpdateRule> with_average(std::unique_ptr<UpdateRule> rule, double decay);

// The optimizer of one rank, with the state for its part of each parameter.
class Optimizer {
 public:
  Optimizer(Context&, const ParameterBuckets&, std::unique_ptr<UpdateRule>, const Topology&,
            const std::vector<ParamGroup>& groups = {});
  // Updates the master weights and the model weights of this rank's part. Collective if the rule is
  // (UpdateRule::update).
  void step(Context&, ParameterBuckets&, float learning_rate, float gradient_scale);
  std::int64_t steps() const { return steps_; }

  // Replaces the master weights by their average. Throws Error if the rule keeps no average.
  void take_average(Context&, ParameterBuckets&);

  // Adds the rule's state and the number of steps.
  void append_state(const ParameterBuckets&, const Topology&, State& into);

 private:
  std::unique_ptr<UpdateRule> rule_;
  // Buckets shared by the same ranks; they are updated together.
  struct SharedBuckets {
    DataGroups data;
    ProcessGroup sharing;
    std::vector<ProcessGroup> sharded_by;
    std::vector<std::size_t> buckets;
  };
  void add_bucket(const Topology& topology, const Bucket& bucket, std::size_t index);

  std::vector<SharedBuckets> together_;
  std::vector<std::vector<UpdatePart>> parts_;  // by bucket; step() fills in the gradients
  std::int64_t steps_ = 0;
};

}  // namespace trident

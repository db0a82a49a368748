// A parameter: its name, the part of it that this rank holds, and its memory. Initialisation,
// gradient reduction, ZeRO, clipping, checkpoints and the Hugging Face map all use this one
// description.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/context.h"
#include "core/tensor.h"
#include "parallel/placement.h"

namespace trident {

// Initial values: value = deviation · normal(seed, name, global index) + mean, but 0 in row
// `zero_row` of the global tensor.
struct Initial {
  float mean = 0;
  float deviation = 0;
  std::int64_t zero_row = -1;  // -1: none
  static Initial zeros() { return {}; }
  static Initial ones() { return {.mean = 1}; }
  static Initial normal(float deviation) { return {.deviation = deviation}; }
};

struct ParameterSpec {
  std::string name;
  Placement placement;
  Initial initial = {};

  bool decays() const { return placement.global.rank() >= 2; }  // whether weight decay applies
};

class Parameter;

// Allocates a gradient's memory where that is not held all the time (parallel/zero/).
class GradientMemory {
 public:
  virtual ~GradientMemory() = default;
  // Binds memory to the gradient of this use. Its contents are stale.
  virtual void open(Context&, Parameter& parameter, int use) = 0;
};

// The tensor that a module computes with while it holds the view.
class WeightView {
 public:
  explicit WeightView(Tensor tensor) : tensor_(std::move(tensor)) {}
  const Tensor& tensor() const { return tensor_; }

 private:
  Tensor tensor_;
};

using WeightVersion = std::int64_t;

class Parameter {
 public:
  explicit Parameter(ParameterSpec spec) : spec_(std::move(spec)) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const ParameterSpec& spec() const { return spec_; }
  const std::string& name() const { return spec_.name; }

  // The weight as of `version`: the live weight, or one of the stash
  // (parallel/zero/weight_stash.h). Throws Error where that version is not there. Under ZeRO stage
  // 3 the weight is there only while its module uses it (parallel/zero/weight_gathering.h).
  WeightView acquire(WeightVersion version) const;
  // Versions count updates. Without a stash the only version is 0.
  void stash(WeightVersion version, Tensor weight) { stashed_[version] = std::move(weight); }
  void unstash(WeightVersion version) { stashed_.erase(version); }
  void set_live(WeightVersion version) { live_ = version; }

  // A tied weight that is used twice on one rank accumulates the two gradients separately.
  int add_use() { return uses_++; }
  int uses() const { return uses_; }

  // The owners of the flat buffers (parallel/zero/) bind views of them, in the local shape.
  void bind(Tensor weight, Tensor gradient, Tensor second_gradient) {
    bind_weight(std::move(weight));
    bind_gradient(0, std::move(gradient));
    bind_gradient(1, std::move(second_gradient));
  }
  void bind_weight(Tensor weight) { weight_ = std::move(weight); }
  void bind_gradient(int use, Tensor gradient) { gradients_[use] = std::move(gradient); }
  void set_gradient_memory(GradientMemory* memory) { memory_ = memory; }
  const Tensor& weight() const { return weight_; }
  const Tensor& gradient(int use) const { return gradients_[use]; }
  // The gradient of this use, with memory allocated for it where it has none.
  const Tensor& open_gradient(Context& context, int use) {
    if (!gradients_[use] && memory_ != nullptr) memory_->open(context, *this, use);
    return gradients_[use];
  }

  // Marks this use's gradient as a leftover of an earlier step.
  void set_stale(int use) { stale_[use] = true; }
  // True at the first call of a use after set_stale(). The use then writes its gradient instead of
  // adding to it.
  bool take_stale(int use) { return std::exchange(stale_[use], false); }

 private:
  ParameterSpec spec_;
  int uses_ = 0;
  Tensor weight_;
  WeightVersion live_ = 0;
  std::map<WeightVersion, Tensor> stashed_;
  Tensor gradients_[2];
  bool stale_[2] = {};
  GradientMemory* memory_ = nullptr;
};

// One use of a parameter by a module.
class Weight {
 public:
  Weight() = default;
  explicit Weight(std::shared_ptr<Parameter> parameter)
      : parameter_(std::move(parameter)), use_(parameter_->add_use()) {}
  explicit operator bool() const { return parameter_ != nullptr; }
  WeightView acquire(WeightVersion version) const { return parameter_->acquire(version); }
  // The gradient, for kernels that add to it. It is zeroed first where this step has not added to
  // it.
  const Tensor& gradient(Context&) const;
  // gradient (M, N) += leftᵀ · right, with left (T, M) and right (T, N). Where there is a
  // bias_gradient (M), the column sums of left are added to it.
  void add_product(Context&, const Tensor& left, const Tensor& right,
                   const Tensor& bias_gradient = {}) const;
  const std::shared_ptr<Parameter>& parameter() const { return parameter_; }
  int use() const { return use_; }
  std::int64_t dim(int i) const { return parameter_->spec().placement.local().dim(i); }

 private:
  std::shared_ptr<Parameter> parameter_;
  int use_ = 0;
};

// Fills `weight` with the initial values of its rows of the local slice, from `first_row` on (each
// element of a vector is a row). The values depend on (seed, name, global index) alone.
void initialise(Context&, const ParameterSpec&, std::uint64_t seed, const Tensor& weight,
                std::int64_t first_row = 0);

}  // namespace trident

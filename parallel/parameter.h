// A parameter: its name, the part of it that this rank holds, and its memory. Initialisation,
// gradient reduction, ZeRO, clipping, checkpoints and the Hugging Face map all use this one
// description.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
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

// The role of a parameter in its model. Optimizers, weight decay and plans treat roles differently.
enum class ParameterRole : std::uint8_t {
  embedding,    // a table of rows that are looked up
  head,         // the table of the output layer
  matrix,       // the weight of a linear layer
  vector,       // biases and norms
  router,       // the weight that scores experts
  expert_bias,  // added to the scores for the choice of experts; balancing changes it
};
std::string_view name_of(ParameterRole);

struct ParameterSpec {
  std::string name;
  Placement placement;
  Initial initial = {};
  ParameterRole role = ParameterRole::matrix;
  bool keeps_fp32 = false;  // whatever the dtype of the model

  // Whether weight decay applies.
  bool decays() const { return role != ParameterRole::vector && placement.global.rank() >= 2; }
  DType dtype(DType of_model) const { return keeps_fp32 ? DType::f32 : of_model; }
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

  // A weight that several modules of a rank use (a tied one) accumulates a gradient for each use.
  int add_use() {
    gradients_.emplace_back();
    return uses() - 1;
  }
  int uses() const { return static_cast<int>(gradients_.size()); }

  // The owners of the flat buffers (parallel/zero/) bind views of them, in the local shape.
  void bind_weight(Tensor weight) { weight_ = std::move(weight); }
  void bind_gradient(int use, Tensor gradient) { of(use).tensor = std::move(gradient); }
  void set_gradient_memory(GradientMemory* memory) { memory_ = memory; }
  const Tensor& weight() const { return weight_; }
  const Tensor& gradient(int use) const {
    return gradients_.at(static_cast<std::size_t>(use)).tensor;
  }
  // The gradient of this use, with memory allocated for it where it has none.
  const Tensor& open_gradient(Context& context, int use) {
    if (!of(use).tensor && memory_ != nullptr) memory_->open(context, *this, use);
    return of(use).tensor;
  }

  // Marks this use's gradient as a leftover of an earlier step.
  void set_stale(int use) { of(use).stale = true; }
  // True at the first call of a use after set_stale(). The use then writes its gradient instead of
  // adding to it.
  bool take_stale(int use) { return std::exchange(of(use).stale, false); }

 private:
  struct Gradient {  // of one use
    Tensor tensor;
    bool stale = false;
  };
  Gradient& of(int use) { return gradients_.at(static_cast<std::size_t>(use)); }

  ParameterSpec spec_;
  Tensor weight_;
  WeightVersion live_ = 0;
  std::map<WeightVersion, Tensor> stashed_;
  std::vector<Gradient> gradients_;
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
  // The gradients (E, M, N) of experts += their rows' products, see kernels/grouped_gemm.h.
  void add_grouped_product(Context&, const Tensor& left, const Tensor& right,
                           const Tensor& ends) const;
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

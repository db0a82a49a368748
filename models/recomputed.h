// A module whose activations are not saved: backward runs forward again from the saved input
// (activation recomputation, Chen 2016). For modules inside others; the layers of a model are
// recomputed by engine/chunk_runner.h. Collective as the module itself, whose forward then runs
// twice.
#pragma once

#include <memory>
#include <vector>

#include "models/module.h"

namespace trident {

class Recomputed final : public Module {
 public:
  // `module` has no gradients that forward adds to.
  explicit Recomputed(std::unique_ptr<Module> module) : module_(std::move(module)) {}

  std::vector<std::shared_ptr<Parameter>> parameters() const override {
    return module_->parameters();
  }
  std::vector<std::shared_ptr<Parameter>> buffers() const override { return module_->buffers(); }
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, SavedActivationsPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const override;

 private:
  struct Saved;
  std::unique_ptr<Module> module_;
};

}  // namespace trident

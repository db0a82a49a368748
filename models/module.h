// The contract of every module: explicit forward, backward_input and backward_weight.
//
// T rows: the tokens of one micro-batch, B samples of S positions, flattened; under sequence
// parallelism a module between the linear layers sees T/t of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/context.h"
#include "parallel/parameter.h"

namespace trident {

// The keys and values of the positions that a text has had so far, for the layers of a model:
// (B, P, 2·G·D) each, made at a layer's first use. For generation, without gradients.
class KeyValueCache {
 public:
  // P: the most positions.
  explicit KeyValueCache(std::int64_t positions) : positions_(positions) {}
  std::int64_t positions() const { return positions_; }
  Tensor& of_layer(const void* layer) { return layers_[layer]; }

 private:
  std::int64_t positions_;
  std::map<const void*, Tensor> layers_;
};

// One micro-batch as the modules see it.
struct MicroBatch {
  std::int64_t batch = 0;     // B
  std::int64_t sequence = 0;  // S
  Tensor samples;             // (B) i64: global sample numbers, which key the dropout masks
  Tensor tokens;              // (T) i32; defined where the embedding is
  Tensor labels;              // (T) i32; defined where the loss is
  bool training = true;       // false: no dropout
  float loss_scale = 1;       // the gradient is that of loss_scale · Σ losses
  WeightVersion version = 0;
  // Where it goes on with texts: begin positions of each have been before, which the cache has, and
  // it gets those of this one. Without, texts begin here.
  std::int64_t begin = 0;
  KeyValueCache* cache = nullptr;
  std::int64_t logit_rows = 0;  // logits of the last so many rows alone; 0: of all
};

// What one module keeps of one micro-batch from forward to backward_weight. The caller owns it, so
// any number of micro-batches can be in flight. Each module derives its own.
class SavedActivations {
 public:
  virtual ~SavedActivations() = default;
};
using SavedActivationsPtr = std::unique_ptr<SavedActivations>;

class Module {
 public:
  virtual ~Module() = default;

  // Parameters in the order in which forward uses them.
  virtual std::vector<std::shared_ptr<Parameter>> parameters() const = 0;
  // Those that backward_input reads: ZeRO stage 3 gathers only these for it.
  virtual std::vector<std::shared_ptr<Parameter>> backward_parameters() const {
    return parameters();
  }
  // Those whose gradients forward adds to already, in training; of all others backward_weight does.
  virtual std::vector<std::shared_ptr<Parameter>> forward_gradients() const { return {}; }

  // x: (T or T/t, H), undefined for a module that reads the tokens. Fills `record`.
  // Gives the activations (T or T/t, H), or the losses (T) where the module ends the model.
  virtual Tensor forward(Context&, const MicroBatch&, const Tensor& x,
                         SavedActivationsPtr& saved) const = 0;

  // The gradient of x from that of the output (undefined for a module that ends the model), keeping
  // in `record` what backward_weight needs. Undefined for a module that reads the tokens.
  virtual Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                                SavedActivationsPtr& saved) const = 0;

  // Adds to the parameters' gradients and frees the record.
  virtual void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr& saved) const = 0;
};

}  // namespace trident

// The interface of every module: explicit forward, backward_input and backward_weight. The rank's
// thread calls it. All ranks of the tensor-parallel group call it in the same order, and so do
// those that exchange the tokens of its experts.
//
// T rows: the tokens of one micro-batch, B samples of S positions, flattened. Under sequence
// parallelism a module between the linear layers sees T/t of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/context.h"
#include "models/statistics.h"
#include "parallel/parameter.h"

namespace trident {

// The keys and values of the positions that each text has had so far, one tensor per layer,
// allocated when the layer first uses it. For generation, without gradients.
class KeyValueCache {
 public:
  // The positions of one layer: (B, P, ·) from position `begin` on, see CacheArgs. A layer with a
  // window drops older ones.
  struct Layer {
    Tensor rows;
    std::int64_t begin = 0, window = 0;
  };
  // The largest number of positions of a text.
  explicit KeyValueCache(std::int64_t positions) : positions_(positions) {}
  std::int64_t positions() const { return positions_; }
  Layer& of_layer(const void* layer) { return layers_[layer]; }
  // Whether every layer holds the positions that a query at `position` sees before itself. If not,
  // a text can't be continued from there; it can from position 0.
  bool holds_before(std::int64_t position) const {
    return std::ranges::all_of(layers_, [&](const auto& one) {
      const Layer& layer = one.second;
      return layer.begin == 0 || layer.begin <= position - layer.window + 1;
    });
  }

 private:
  std::int64_t positions_;
  std::map<const void*, Layer> layers_;
};

// The input of the modules for one micro-batch.
struct MicroBatch {
  std::int64_t batch = 0;     // B
  std::int64_t sequence = 0;  // S, on this rank
  std::int64_t complete = 0;  // positions of a sample on all ranks that share it; 0: S
  Tensor samples;             // (B) i64: global sample numbers, which key the dropout masks
  Tensor tokens;              // (T) i32; defined on the stage with the embedding
  Tensor labels;              // (T) i32; defined on the stage with the loss. Below 0: doesn't count
  // Where samples consist of documents. (B, complete) i64: the place in the sample at which each
  // token's document begins, before which attention doesn't look.
  Tensor document_begins;
  Tensor places;     // (T) i32: the place of each token in its sample; none: 0 … S - 1
  Tensor positions;  // (T) i32: the position of each token; none: its place in the sample
  // Where other ranks hold the tokens behind a position: for each layer that predicts a further
  // token, its tokens and its labels, -1 behind a sample's last one; (T) i32, with `labels`.
  struct Further {
    Tensor tokens, labels;
  };
  std::vector<Further> further;
  bool training = true;  // false: no dropout
  // Gradients are of loss_scale · Σ losses over the tokens that count, and of auxiliary_scale · Σ
  // auxiliary losses over all tokens. Known to backward; to forward on the last stage alone.
  float loss_scale = 1, auxiliary_scale = 1;
  WeightVersion version = 0;
  // For a micro-batch that continues texts: `begin` positions of each text are in `cache` already,
  // and the modules add the positions of this one. Without a cache, texts begin here.
  std::int64_t begin = 0;
  KeyValueCache* cache = nullptr;
  std::int64_t logit_rows = 0;  // compute logits of the last `logit_rows` rows only; 0: of all
  StatisticSums statistics;     // to which forward adds

  std::int64_t sample_positions() const { return complete > 0 ? complete : sequence; }
};

// The activations that one module saves for one micro-batch from forward to backward_weight. The
// caller owns them, so any number of micro-batches can be in flight. Each module derives its own
// type.
class SavedActivations {
 public:
  virtual ~SavedActivations() = default;
};
using SavedActivationsPtr = std::unique_ptr<SavedActivations>;

class Module {
 public:
  virtual ~Module() = default;

  // The parameters in the order in which forward uses them.
  virtual std::vector<std::shared_ptr<Parameter>> parameters() const = 0;
  // The parameters that backward_input reads: ZeRO stage 3 gathers only these for it.
  virtual std::vector<std::shared_ptr<Parameter>> backward_parameters() const {
    return parameters();
  }
  // The parameters whose gradients forward already adds to, in training. backward_weight adds to
  // all other gradients.
  virtual std::vector<std::shared_ptr<Parameter>> forward_gradients() const { return {}; }

  // Parameters without gradients, which no optimizer updates (the biases of experts' routers).
  virtual std::vector<std::shared_ptr<Parameter>> buffers() const { return {}; }

  // x: (T or T/t, H), undefined for a module that reads the tokens. Fills `saved`. Returns the
  // activations (T or T/t, H), or the losses (T) if the module ends the model. Adds its auxiliary
  // losses to batch.statistics; backward_input adds their gradients by itself.
  virtual Tensor forward(Context&, const MicroBatch&, const Tensor& x,
                         SavedActivationsPtr& saved) const = 0;

  // Returns the gradient of x, given the gradient of the output (undefined for a module that ends
  // the model). The result is undefined for a module that reads the tokens. Keeps in `saved` the
  // data that backward_weight needs.
  virtual Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                                SavedActivationsPtr& saved) const = 0;

  // Adds to the parameters' gradients and frees the saved activations.
  virtual void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr& saved) const = 0;
};

}  // namespace trident

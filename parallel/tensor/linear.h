// Linear layers by their role in a parallel model. Megatron's column- and row-parallel layers
// (Shoeybi 2019) shard their weights over the ranks that share a layer; a replicated layer is the
// same on all of them. A module gets one from ParallelContext::linear().
//
// T rows and t ranks are as in parallel/parallel_context.h. All ranks that share a layer call
// forward and backward in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/context.h"
#include "parallel/parallel_context.h"
#include "parallel/parameter.h"

namespace trident {

enum class LinearRole : std::uint8_t {
  column,  // every rank has the full input and a shard of the output
  row,     // every rank has a shard of the input and, after a sum, the full output
  // Every rank has the full weight and handles the rows that it holds. Ranks that hold the same
  // rows must compute the same bits, which products chosen by time on a GPU don't promise
  // (KernelOptions::deterministic).
  replicated,
  // As column, of the vocabulary's rows, padded at their end: every rank has all rows of the input,
  // gathered already, and the logits of its own part (parallel/tensor/vocabulary.h has their loss).
  vocabulary,
};

// y = x Wᵀ + b with W (out, in).
struct LinearSpec {
  std::string name;  // of the parameters NAME.weight and NAME.bias
  LinearRole role = LinearRole::column;
  std::int64_t in = 0;
  // The output's extent as a stack of blocks (query, key, value), each of which a column-parallel
  // layer splits equally.
  std::vector<std::int64_t> out;
  std::int64_t padded = 0;  // vocabulary: the output's extent with its padding
  bool bias = false;
  float init_deviation = 0;  // the standard deviation of the initial weight
};

// The activations of one linear layer that backward needs.
struct LinearActivations {
  // (T, in), all rows; (T/t, in) where they are gathered again. A replicated layer keeps its own.
  Tensor input;
  Tensor gradient;  // (T, out), the same rows, from backward_input until backward_weight
};

class Linear {
 public:
  // `weight`: (out/t, in), (out, in/t) or (out, in), by the role; `bias` may be undefined, and is
  // for a vocabulary.
  Linear(ParallelContext parallel, LinearRole role, Weight weight, Weight bias = {});

  // Where the input and the output of forward lie, and so their gradients, for `rows` rows (T).
  Placement input(std::int64_t rows) const;
  Placement output(std::int64_t rows) const;

  // column: x (T or T/t, in) → (T, out/t). row: (T, in/t) → (T or T/t, out). replicated: (T or T/t,
  // in) → (T or T/t, out). vocabulary: (n, in) → (n, V'/t), for any of the T rows.
  Tensor forward(Context&, WeightVersion, const Tensor& x, LinearActivations&) const;
  // GELU of the same product; `pre_activation` becomes y, for backward. Throws Error for a
  // row-parallel layer, whose product is no complete sum.
  Tensor forward_gelu(Context&, WeightVersion, const Tensor& x, LinearActivations&,
                      Tensor& pre_activation) const;
  // Returns the gradient of x, with x's placement. Where x = GELU(u), `pre_activation` is u, and
  // the result is the gradient of u (a row-parallel layer). Not for a vocabulary.
  Tensor backward_input(Context&, WeightVersion, const Tensor& grad_y, LinearActivations&,
                        const Tensor& pre_activation = {}) const;
  void backward_weight(Context&, LinearActivations&) const;  // frees the saved activations
  // Both at once for a vocabulary: grad_y (n, V'/t) of the rows x (n, in) adds to the weight's
  // gradient and fills grad_x (n, in) with this rank's addend of the sum over the group.
  void backward(Context&, WeightVersion, const Tensor& grad_y, const Tensor& x,
                const Tensor& grad_x) const;
  // Appends the parameters, the bias first.
  void collect(std::vector<std::shared_ptr<Parameter>>& into) const;
  const Weight& weight() const { return weight_; }

 private:
  void multiply(Context&, WeightVersion, const Tensor& x, LinearActivations&, Tensor& y,
                Tensor* pre_activation) const;
  Tensor forward_row(Context&, WeightVersion, const Tensor& x, LinearActivations&) const;

  ParallelContext parallel_;
  LinearRole role_;
  Weight weight_, bias_;
};

}  // namespace trident

// Megatron-style linear layers: weights cut by columns or rows over the tensor group (Shoeybi
// 2019), activations optionally cut by rows between them (sequence parallelism, Korthikanti 2022).
//
// T rows (tokens) of a micro-batch. Under sequence parallelism a rank holds T/t consecutive rows of
// what lies between the layers; the paper cuts the sequence, we cut the flattened (sample,
// position) rows, which is the same work in one contiguous piece.
#pragma once

#include <functional>
#include <string>

#include "core/context.h"
#include "parallel/parameter.h"
#include "parallel/placement.h"
#include "parallel/process_group.h"

namespace trident {

// How a module is cut over the tensor group. The group may be undefined where only shapes are
// wanted (the costs of a model, the parts of its files).
struct TensorParallel {
  ProcessGroup group;
  int rank = 0;
  int size = 1;
  bool sequence_parallel = false;
  // Sequence parallelism: of the rows gathered for a column-parallel layer only this rank's are
  // kept, and gathered again for the weight gradient (Korthikanti 2022, section 4.2.2).
  bool gathers_again = false;
  // Sequence parallelism: what is gathered and summed goes a rank's rows at a time, so that
  // products of some rows run beside the transfer of others.
  bool overlap = false;

  // Where a parameter lies: whole on each rank (its gradient is partial under sequence parallelism,
  // where a rank sees its own rows only); cut along `dim`, whose padded extent is `padded` (0: the
  // real one); cut along rows that are a stack of blocks, each into equal parts.
  Placement replicated(const Shape& global) const;
  Placement part(const Shape& global, int dim, std::int64_t padded = 0) const;
  Placement stacked(const Shape& global, const std::vector<std::int64_t>& blocks) const;

  // (T, H) of which this rank holds T/t rows → all T rows, and back by a sum. Without sequence
  // parallelism gather is the identity and the sum is an all-reduce in place.
  Tensor gather_rows(Context&, const Tensor& x) const;
  Tensor sum_to_rows(Context&, const Tensor& x) const;

  // The same around a product: product(begin, count) is called for rows of the whole tensor, once
  // for all of them, or where it overlaps for one rank's after another's, every row once.
  using Product = std::function<void(std::int64_t begin, std::int64_t count)>;
  // gather_rows(x) given to make_product before the first rows are there.
  Tensor gather_rows(Context&, const Tensor& x,
                     const std::function<Product(const Tensor& all)>& make_product) const;
  // sum_to_rows(x) of what the products write to x.
  Tensor sum_to_rows(Context&, const Tensor& x, const Product& product) const;

 private:
  bool cuts_rows() const { return size > 1 && sequence_parallel && overlap; }
};

// What backward needs of one linear layer.
struct LinearActivations {
  Tensor input;     // (T, in), all rows; (T/t, in) where they are gathered again
  Tensor gradient;  // (T, out), all rows, from backward_input until backward_weight
};

// y (T, out/t) = x Wᵀ + b with W (out/t, in): the input is whole, the output is cut.
class ColumnParallelLinear {
 public:
  ColumnParallelLinear(TensorParallel parallel, Weight weight, Weight bias);
  // x: (T or T/t, in)
  Tensor forward(Context&, WeightVersion, const Tensor& x, LinearActivations&) const;
  // GELU of the same; `pre_activation` becomes y, for backward.
  Tensor forward_gelu(Context&, WeightVersion, const Tensor& x, LinearActivations&,
                      Tensor& pre_activation) const;
  // Gives the gradient of x, summed over the group, (T or T/t, in).
  Tensor backward_input(Context&, WeightVersion, const Tensor& grad_y, LinearActivations&) const;
  void backward_weight(Context&, LinearActivations&) const;  // frees the record

 private:
  void multiply(Context&, WeightVersion, const Tensor& x, LinearActivations&, Tensor& y,
                Tensor* pre_activation) const;

  TensorParallel parallel_;
  Weight weight_, bias_;
};

// y (T or T/t, out) = Σ_ranks x Wᵀ + b with W (out, in/t): the input is cut, the output is whole.
class RowParallelLinear {
 public:
  RowParallelLinear(TensorParallel parallel, Weight weight, Weight bias);
  Tensor forward(Context&, WeightVersion, const Tensor& x, LinearActivations&) const;
  // Where x = GELU(u), `pre_activation` is u and the gradient that of u.
  Tensor backward_input(Context&, WeightVersion, const Tensor& grad_y, LinearActivations&,
                        const Tensor& pre_activation = {}) const;
  void backward_weight(Context&, LinearActivations&) const;  // frees the record

 private:
  TensorParallel parallel_;
  Weight weight_, bias_;
};

}  // namespace trident

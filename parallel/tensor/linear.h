// Megatron-style linear layers: weights are sharded by columns or rows over the tensor group
// (Shoeybi 2019), and activations between the layers are optionally sharded by rows (sequence
// parallelism, Korthikanti 2022).
//
// T is the number of rows (tokens) of a micro-batch, t the size of the tensor group. Under sequence
// parallelism a rank holds T/t consecutive rows of the activations between the layers. The paper
// shards the sequence; we shard the flattened (sample, position) rows, which is the same work in
// one contiguous range.
//
// All ranks of the tensor group call forward and backward in the same order.
#pragma once

#include <functional>
#include <string>

#include "core/context.h"
#include "parallel/parameter.h"
#include "parallel/placement.h"
#include "parallel/process_group.h"

namespace trident {

// The sharding of a module over the tensor group. The group may be undefined where only shapes are
// needed (the costs of a model, the parts of its files).
struct TensorParallel {
  ProcessGroup group;
  int rank = 0;
  int size = 1;
  bool sequence_parallel = false;
  // Sequence parallelism: a rank keeps only its own rows of the input that it gathered for a
  // column-parallel layer, and gathers all rows again for the weight gradient (Korthikanti 2022,
  // section 4.2.2).
  bool gathers_again = false;
  // Sequence parallelism: gathering and summing go by one rank's rows at a time, so that products
  // of some rows overlap with the transfer of others.
  bool overlap = false;

  // The placement of a parameter: replicated on each rank (its gradient is partial under sequence
  // parallelism, where a rank sees its own rows only); sharded along `dim`, whose padded extent is
  // `padded` (0: the real one); sharded along rows that are a stack of blocks, each split into
  // equal parts.
  Placement replicated(const Shape& global) const;
  Placement part(const Shape& global, int dim, std::int64_t padded = 0) const;
  Placement stacked(const Shape& global, const std::vector<std::int64_t>& blocks) const;

  // gather_rows() turns (T, H), of which this rank holds T/t rows, into all T rows.
  // reduce_partial_sums() goes back by a sum. Without sequence parallelism gather_rows() is the
  // identity and reduce_partial_sums() an all-reduce in place.
  Tensor gather_rows(Context&, const Tensor& x) const;
  Tensor reduce_partial_sums(Context&, const Tensor& x) const;

  // The same around a product. product(begin, count) is called for rows of the full tensor: once
  // for all rows, or with `overlap` for one rank's rows after another's. Every row is passed once.
  using Product = std::function<void(std::int64_t begin, std::int64_t count)>;
  // gather_rows(x), passed to make_product before the first rows have arrived.
  Tensor gather_rows(Context&, const Tensor& x,
                     const std::function<Product(const Tensor& all)>& make_product) const;
  // reduce_partial_sums(x), where the products write x.
  Tensor reduce_partial_sums(Context&, const Tensor& x, const Product& product) const;

 private:
  bool overlaps_by_rows() const { return size > 1 && sequence_parallel && overlap; }
};

// The activations of one linear layer that backward needs.
struct LinearActivations {
  Tensor input;     // (T, in), all rows; (T/t, in) where they are gathered again
  Tensor gradient;  // (T, out), all rows, from backward_input until backward_weight
};

// y (T, out/t) = x Wᵀ + b with W (out/t, in): every rank has the full input and a shard of the
// output.
class ColumnParallelLinear {
 public:
  ColumnParallelLinear(TensorParallel parallel, Weight weight, Weight bias);
  // x: (T or T/t, in)
  Tensor forward(Context&, WeightVersion, const Tensor& x, LinearActivations&) const;
  // GELU of the same product; `pre_activation` becomes y, for backward.
  Tensor forward_gelu(Context&, WeightVersion, const Tensor& x, LinearActivations&,
                      Tensor& pre_activation) const;
  // Returns the gradient of x, summed over the group, (T or T/t, in).
  Tensor backward_input(Context&, WeightVersion, const Tensor& grad_y, LinearActivations&) const;
  void backward_weight(Context&, LinearActivations&) const;  // frees the saved activations

 private:
  void multiply(Context&, WeightVersion, const Tensor& x, LinearActivations&, Tensor& y,
                Tensor* pre_activation) const;

  TensorParallel parallel_;
  Weight weight_, bias_;
};

// y (T or T/t, out) = Σ_ranks x Wᵀ + b with W (out, in/t): every rank has a shard of the input and
// the full output.
class RowParallelLinear {
 public:
  RowParallelLinear(TensorParallel parallel, Weight weight, Weight bias);
  Tensor forward(Context&, WeightVersion, const Tensor& x, LinearActivations&) const;
  // Where x = GELU(u), `pre_activation` is u, and the result is the gradient of u.
  Tensor backward_input(Context&, WeightVersion, const Tensor& grad_y, LinearActivations&,
                        const Tensor& pre_activation = {}) const;
  void backward_weight(Context&, LinearActivations&) const;  // frees the saved activations

 private:
  TensorParallel parallel_;
  Weight weight_, bias_;
};

}  // namespace trident

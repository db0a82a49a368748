// The experts of this rank (models/experts.h): MLPs with a gated unit, whose products are grouped
// by expert (kernels/grouped_gemm.h). Each pass has two halves, one of each projection.
//
// Letters: Q rows for this rank's experts, H hidden, E experts in all, F their width.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/module.h"
#include "models/transformer.h"

namespace trident {

class GroupedMlp {
 public:
  struct Saved {
    Tensor ends;                  // the groups of rows (TokenExchange::ends)
    Tensor row_weights;           // (Q), by which each row's result is multiplied
    Tensor pre_activation;        // (Q, 2F), then its gradient
    Tensor gradient, activation;  // (Q, H), (Q, F): operands of the down gradient
  };

  // Makes the parameters NAME.up (E, 2F, H), gate then up, and NAME.down (E, H, F), or with inputs
  // first (E, H, 2F) and (E, F, H); with biases also NAME.up_bias (E, 2F), NAME.down_bias (E, H).
  GroupedMlp(const ParallelContext&, const TransformerShape&, const std::string& name);
  std::vector<std::shared_ptr<Parameter>> parameters() const;

  // x (Q, H) → activation (Q, F), times the row weights, → y (Q, H). The caller sets saved.ends and
  // saved.row_weights. Where ranks share an expert, y is this rank's part of a sum.
  Tensor forward_up(Context&, const MicroBatch&, const Tensor& x, Saved&) const;
  Tensor forward_down(Context&, const MicroBatch&, const Tensor& activation, const Saved&) const;
  // The gradient of y (Q, H) → that of the row weights (Q). It is kept.
  Tensor backward_down(Context&, const MicroBatch&, const Tensor& grad_y, Saved&) const;
  // → the gradient of x (Q, H).
  Tensor backward_up(Context&, const MicroBatch&, const Saved&) const;
  // Frees the tensors that the weights' gradients don't need.
  void release(Saved&) const;
  void backward_weight_down(Context&, const Saved&) const;
  void backward_weight_up(Context&, const Tensor& x, const Saved&) const;

 private:
  // y := the products of the rows x with their expert's matrix; grad_x := those of the gradients.
  void multiply(Context&, const MicroBatch&, const Weight&, const Tensor& x, const Tensor& y,
                const Saved&) const;
  void multiply_gradient(Context&, const MicroBatch&, const Weight&, const Tensor& grad_y,
                         const Tensor& grad_x, const Saved&) const;
  void add_gradient(Context&, const Weight&, const Tensor& grad_y, const Tensor& x,
                    const Saved&) const;

  bool input_first_;
  GatedUnit unit_;
  Weight up_, down_;
  Weight up_bias_, down_bias_;
  bool adds_down_bias_;  // one of the ranks that share an expert does
};

}  // namespace trident

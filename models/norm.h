// LayerNorm or RMSNorm, a part of other modules.
#pragma once

#include <string>
#include <vector>

#include "core/context.h"
#include "parallel/parameter.h"
#include "parallel/tensor/linear.h"

namespace trident {

struct NormActivations {
  Tensor x, mean, rstd, gradient;
};

class Norm {
 public:
  // `bias` false: RMSNorm. Makes the parameters NAME.weight (and NAME.bias), replicated over
  // tensor-parallel ranks.
  Norm(const ParallelContext&, const std::string& name, std::int64_t hidden, float epsilon,
       bool bias);
  Tensor forward(Context&, WeightVersion, const Tensor& x, NormActivations&) const;
  // Adds `residual_grad`, if defined, to the result.
  Tensor backward_input(Context&, WeightVersion, const Tensor& grad_y, const Tensor& residual_grad,
                        NormActivations&) const;
  void backward_weight(Context&, NormActivations&) const;  // frees the saved activations
  void collect(std::vector<std::shared_ptr<Parameter>>& into) const;

 private:
  Weight weight_, bias_;
  float epsilon_;
};

}  // namespace trident

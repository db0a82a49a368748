// RMSNorm of each query or key head by one weight (Qwen3), a part of Attention.
#pragma once

#include <string>
#include <vector>

#include "core/context.h"
#include "kernels/head_columns.h"
#include "parallel/parallel_context.h"
#include "parallel/parameter.h"

namespace trident {

class HeadNorm {
 public:
  // Makes the parameter NAME.weight (D), replicated over the ranks that share the heads. `heads`
  // are those of this rank.
  HeadNorm(const ParallelContext&, const std::string& name, std::int64_t heads, std::int64_t dim,
           float epsilon);
  // x and y: the heads in rows (T, ·); rstd is saved for backward.
  void forward(Context&, WeightVersion, const HeadColumns& x, const HeadColumns& y,
               Tensor& rstd) const;
  void backward_input(Context&, WeightVersion, const HeadColumns& grad_y, const HeadColumns& x,
                      const Tensor& rstd, const HeadColumns& grad_x) const;
  void backward_weight(Context&, const HeadColumns& grad_y, const HeadColumns& x,
                       const Tensor& rstd) const;
  void collect(std::vector<std::shared_ptr<Parameter>>& into) const;

 private:
  Weight weight_;
  std::int64_t heads_;
  float epsilon_;
};

}  // namespace trident

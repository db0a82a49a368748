// The norms of queries and keys before their rotary positions, parts of Attention.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/context.h"
#include "kernels/head_columns.h"
#include "parallel/parallel_context.h"
#include "parallel/parameter.h"

namespace trident {

class HeadsNorm {
 public:
  virtual ~HeadsNorm() = default;
  // x and y: this rank's heads in rows (T, ·); rstd is saved for backward.
  virtual void forward(Context&, WeightVersion, const HeadColumns& x, const HeadColumns& y,
                       Tensor& rstd) const = 0;
  virtual void backward_input(Context&, WeightVersion, const HeadColumns& grad_y,
                              const HeadColumns& x, const Tensor& rstd,
                              const HeadColumns& grad_x) const = 0;
  virtual void backward_weight(Context&, const HeadColumns& grad_y, const HeadColumns& x,
                               const Tensor& rstd) const = 0;
  virtual void collect(std::vector<std::shared_ptr<Parameter>>& into) const = 0;
};

// RMSNorm of each head by one weight (Qwen3): the parameter NAME.weight (D), replicated over the
// ranks that share the heads. `heads`: those of this rank.
std::unique_ptr<HeadsNorm> norm_of_each_head(const ParallelContext&, const std::string& name,
                                             std::int64_t heads, std::int64_t dim, float epsilon);
// RMSNorm of all heads together (OLMoE): the parameter NAME.weight (heads · D), sharded by heads.
// `heads`: those of all ranks. Collective over the ranks that share them.
std::unique_ptr<HeadsNorm> norm_of_all_heads(const ParallelContext&, const std::string& name,
                                             std::int64_t heads, std::int64_t dim, float epsilon);

}  // namespace trident

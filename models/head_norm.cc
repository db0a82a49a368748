#include "models/head_norm.h"

#include "kernels/norm.h"

namespace trident {

HeadNorm::HeadNorm(const ParallelContext& parallel, const std::string& name, std::int64_t heads,
                   std::int64_t dim, float epsilon)
    : weight_(std::make_shared<Parameter>(
          ParameterSpec{.name = name + ".weight",
                        .placement = parallel.replicated_for_shards({dim}),
                        .initial = Initial::ones(),
                        .role = ParameterRole::vector})),
      heads_(heads),
      epsilon_(epsilon) {}

void HeadNorm::forward(Context& context, WeightVersion version, const HeadColumns& x,
                       const HeadColumns& y, Tensor& rstd) const {
  rstd = context.empty({heads_, x.rows.dim(0)}, DType::f32, Category::activation);
  head_norm_forward(context, {.heads = heads_,
                              .x = x,
                              .y = y,
                              .weight = weight_.acquire(version).tensor(),
                              .rstd = rstd,
                              .epsilon = epsilon_});
}

void HeadNorm::backward_input(Context& context, WeightVersion version, const HeadColumns& grad_y,
                              const HeadColumns& x, const Tensor& rstd,
                              const HeadColumns& grad_x) const {
  head_norm_backward_input(context, {.heads = heads_,
                                     .grad_y = grad_y,
                                     .x = x,
                                     .weight = weight_.acquire(version).tensor(),
                                     .rstd = rstd,
                                     .grad_x = grad_x});
}

void HeadNorm::backward_weight(Context& context, const HeadColumns& grad_y, const HeadColumns& x,
                               const Tensor& rstd) const {
  head_norm_backward_weight(context, {.heads = heads_,
                                      .grad_y = grad_y,
                                      .x = x,
                                      .rstd = rstd,
                                      .grad_weight = weight_.gradient(context)});
}

void HeadNorm::collect(std::vector<std::shared_ptr<Parameter>>& into) const {
  into.push_back(weight_.parameter());
}

}  // namespace trident

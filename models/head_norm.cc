#include "models/head_norm.h"

#include "kernels/norm.h"

namespace trident {
namespace {

Weight gains(std::string name, Placement placement) {
  return Weight(std::make_shared<Parameter>(ParameterSpec{.name = std::move(name),
                                                          .placement = std::move(placement),
                                                          .initial = Initial::ones(),
                                                          .role = ParameterRole::vector}));
}

class EachHead final : public HeadsNorm {
 public:
  EachHead(Weight weight, std::int64_t heads, float epsilon)
      : weight_(std::move(weight)), heads_(heads), epsilon_(epsilon) {}

  void forward(Context& context, WeightVersion version, const HeadColumns& x, const HeadColumns& y,
               Tensor& rstd) const override {
    rstd = context.empty({heads_, x.rows.dim(0)}, DType::f32, Category::activation);
    head_norm_forward(context, {.heads = heads_,
                                .x = x,
                                .y = y,
                                .weight = weight_.acquire(version).tensor(),
                                .rstd = rstd,
                                .epsilon = epsilon_});
  }
  void backward_input(Context& context, WeightVersion version, const HeadColumns& grad_y,
                      const HeadColumns& x, const Tensor& rstd,
                      const HeadColumns& grad_x) const override {
    head_norm_backward_input(context, {.heads = heads_,
                                       .grad_y = grad_y,
                                       .x = x,
                                       .weight = weight_.acquire(version).tensor(),
                                       .rstd = rstd,
                                       .grad_x = grad_x});
  }
  void backward_weight(Context& context, const HeadColumns& grad_y, const HeadColumns& x,
                       const Tensor& rstd) const override {
    head_norm_backward_weight(context, {.heads = heads_,
                                        .grad_y = grad_y,
                                        .x = x,
                                        .rstd = rstd,
                                        .grad_weight = weight_.gradient(context)});
  }
  void collect(std::vector<std::shared_ptr<Parameter>>& into) const override {
    into.push_back(weight_.parameter());
  }

 private:
  Weight weight_;
  std::int64_t heads_;
  float epsilon_;
};

class AllHeads final : public HeadsNorm {
 public:
  AllHeads(ParallelContext parallel, Weight weight, std::int64_t all, float epsilon)
      : parallel_(std::move(parallel)), weight_(std::move(weight)), all_(all), epsilon_(epsilon) {}

  void forward(Context& context, WeightVersion version, const HeadColumns& x, const HeadColumns& y,
               Tensor& rstd) const override {
    const std::int64_t rows = x.rows.dim(0);
    rstd = context.empty({1, rows}, DType::f32, Category::activation);
    const Tensor squares = context.empty({rows}, DType::f32, Category::activation);
    row_dots(context, {.x = x, .y = x, .weight = {}, .columns = weight_.dim(0), .dots = squares});
    parallel_.sum_of_shares(context, squares);
    row_norm_forward(context, {.x = x,
                               .y = y,
                               .weight = weight_.acquire(version).tensor(),
                               .squares = squares,
                               .all_columns = all_,
                               .rstd = rstd,
                               .epsilon = epsilon_});
  }
  void backward_input(Context& context, WeightVersion version, const HeadColumns& grad_y,
                      const HeadColumns& x, const Tensor& rstd,
                      const HeadColumns& grad_x) const override {
    const WeightView weight = weight_.acquire(version);
    const Tensor dots = context.empty({x.rows.dim(0)}, DType::f32, Category::activation);
    row_dots(
        context,
        {.x = x, .y = grad_y, .weight = weight.tensor(), .columns = weight_.dim(0), .dots = dots});
    parallel_.sum_of_shares(context, dots);
    row_norm_backward_input(context, {.grad_y = grad_y,
                                      .x = x,
                                      .weight = weight.tensor(),
                                      .rstd = rstd,
                                      .dots = dots,
                                      .all_columns = all_,
                                      .grad_x = grad_x});
  }
  void backward_weight(Context& context, const HeadColumns& grad_y, const HeadColumns& x,
                       const Tensor& rstd) const override {
    head_norm_backward_weight(context, {.heads = 1,
                                        .grad_y = grad_y,
                                        .x = x,
                                        .rstd = rstd,
                                        .grad_weight = weight_.gradient(context)});
  }
  void collect(std::vector<std::shared_ptr<Parameter>>& into) const override {
    into.push_back(weight_.parameter());
  }

 private:
  ParallelContext parallel_;
  Weight weight_;
  std::int64_t all_;  // elements of the heads of all ranks
  float epsilon_;
};

}  // namespace

std::unique_ptr<HeadsNorm> norm_of_each_head(const ParallelContext& parallel,
                                             const std::string& name, std::int64_t heads,
                                             std::int64_t dim, float epsilon) {
  return std::make_unique<EachHead>(gains(name + ".weight", parallel.replicated_for_shards({dim})),
                                    heads, epsilon);
}

std::unique_ptr<HeadsNorm> norm_of_all_heads(const ParallelContext& parallel,
                                             const std::string& name, std::int64_t heads,
                                             std::int64_t dim, float epsilon) {
  return std::make_unique<AllHeads>(
      parallel, gains(name + ".weight", parallel.sharded({heads * dim}, 0)), heads * dim, epsilon);
}

}  // namespace trident

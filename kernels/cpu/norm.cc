#include "kernels/norm.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {

void norm_forward(const Access& access, Context& context, const NormArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T *const x = data<T>(access, args.x), *const weight = data<T>(access, args.weight),
                   *const bias = data<T>(access, args.bias);
    T* const y = data<T>(access, args.y);
    float *const mean = data<float>(access, args.mean), *const rstd =
                                                            data<float>(access, args.rstd);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t columns = args.x.dim(1);
    context.team().parallel_for(
        args.x.dim(0), grain_rows(columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            leaves.norm_forward(x + t * columns, weight, bias, y + t * columns,
                                mean ? mean + t : nullptr, rstd + t, columns, args.epsilon);
          }
        });
  });
}

void norm_backward_input(const Access& access, Context& context, const NormBackwardArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T *const grad_y = data<T>(access, args.grad_y), *const x = data<T>(access, args.x),
                   *const weight = data<T>(access, args.weight),
                   *const residual = data<T>(access, args.residual_grad);
    T* const grad_x = data<T>(access, args.grad_x);
    const float *const mean = data<float>(access, args.mean), *const rstd =
                                                                  data<float>(access, args.rstd);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t columns = args.x.dim(1);
    context.team().parallel_for(
        args.x.dim(0), grain_rows(columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t at = t * columns;
            leaves.norm_backward(grad_y + at, x + at, weight, mean ? mean + t : nullptr, rstd[t],
                                 residual ? residual + at : nullptr, grad_x + at, columns);
          }
        });
  });
}

void norm_backward_weight(const Access& access, Context& context, const NormWeightArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T *const grad_y = data<T>(access, args.grad_y), *const x = data<T>(access, args.x);
    const float *const mean = data<float>(access, args.mean), *const rstd =
                                                                  data<float>(access, args.rstd);
    float *const grad_weight = data<float>(access, args.grad_weight), *const grad_bias =
                                                                          data<float>(
                                                                              access,
                                                                              args.grad_bias);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t rows = args.x.dim(0), columns = args.x.dim(1);
    // By columns, so that each sum runs over the rows in order.
    parallel_elements(
        context, columns, grain_rows(rows), [&](std::int64_t begin, std::int64_t end) {
          leaves.norm_weight(grad_y + begin, x + begin, mean, rstd, columns, rows, end - begin,
                             grad_weight + begin, grad_bias ? grad_bias + begin : nullptr);
        });
  });
}

}  // namespace trident::cpu

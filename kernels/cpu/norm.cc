#include "kernels/norm.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {
namespace {

// Computes the sums of columns [begin, end) in fp32 and adds them to 16-bit gradients, which are
// rounded once.
template <class U, class Run>
void rounded(const simd::Table& table, U* weight, U* bias, std::int64_t begin, std::int64_t end,
             const Run& run) {
  constexpr std::int64_t columns = 512;
  for (std::int64_t at = begin; at < end; at += columns) {
    const std::int64_t n = std::min(columns, end - at);
    float weights[columns] = {}, biases[columns] = {};
    run(at, n, weights, bias ? biases : nullptr);
    table.f32.add_to(weights, weight + at, n);
    if (bias) table.f32.add_to(biases, bias + at, n);
  }
}

}  // namespace

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
    const simd::Table& table = *state_of(context).table;
    const auto& leaves = table.get<T>();
    const std::int64_t rows = args.x.dim(0), columns = args.x.dim(1);
    // The threads split the columns, so that each sum runs over the rows in order.
    const auto run = [&](std::int64_t begin, std::int64_t n, float* weight, float* bias) {
      leaves.norm_weight(grad_y + begin, x + begin, mean, rstd, columns, rows, n, weight, bias);
    };
    by_dtype(args.grad_weight.dtype(), [&]<class U>(U*) {
      U *const weight = data<U>(access, args.grad_weight), *const bias =
                                                               data<U>(access, args.grad_bias);
      parallel_elements(context, columns, grain_rows(rows),
                        [&](std::int64_t begin, std::int64_t end) {
                          if constexpr (std::is_same_v<U, float>) {
                            run(begin, end - begin, weight + begin, bias ? bias + begin : nullptr);
                          } else {
                            rounded(table, weight, bias, begin, end, run);
                          }
                        });
    });
  });
}

}  // namespace trident::cpu

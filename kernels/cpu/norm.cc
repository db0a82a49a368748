#include "kernels/norm.h"

#include <vector>

#include "kernels/cpu/head_rows.h"
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

// Runs body(row, head) for each head of `d` elements in each row, the rows split over the threads.
template <class Body>
void for_each_head(Context& context, std::int64_t rows, std::int64_t heads, std::int64_t d,
                   const Body& body) {
  context.team().parallel_for(rows, grain_rows(heads * d),
                              [&](std::int64_t begin, std::int64_t end) {
                                for (std::int64_t t = begin; t < end; ++t) {
                                  for (std::int64_t head = 0; head < heads; ++head) body(t, head);
                                }
                              });
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
      leaves.norm_weight({grad_y + begin, columns}, {x + begin, columns}, mean, rstd, rows, n,
                         weight, bias);
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

void head_norm_forward(const Access& access, Context& context, const HeadNormArgs& args) {
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    const auto x = head_rows<T>(access, args.x), y = head_rows<T>(access, args.y);
    const T* const weight = data<T>(access, args.weight);
    float* const rstd = data<float>(access, args.rstd);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t d = args.weight.dim(0), rows = args.x.rows.dim(0);
    for_each_head(context, rows, args.heads, d, [&](std::int64_t t, std::int64_t head) {
      leaves.norm_forward(x.at(t) + head * d, weight, nullptr, y.at(t) + head * d, nullptr,
                          rstd + head * rows + t, d, args.epsilon);
    });
  });
}

void head_norm_backward_input(const Access& access, Context& context,
                              const HeadNormBackwardArgs& args) {
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    const auto grad_y = head_rows<T>(access, args.grad_y), x = head_rows<T>(access, args.x),
               grad_x = head_rows<T>(access, args.grad_x);
    const T* const weight = data<T>(access, args.weight);
    const float* const rstd = data<float>(access, args.rstd);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t d = args.weight.dim(0), rows = args.x.rows.dim(0);
    for_each_head(context, rows, args.heads, d, [&](std::int64_t t, std::int64_t head) {
      leaves.norm_backward(grad_y.at(t) + head * d, x.at(t) + head * d, weight, nullptr,
                           rstd[head * rows + t], nullptr, grad_x.at(t) + head * d, d);
    });
  });
}

void head_norm_backward_weight(const Access& access, Context& context,
                               const HeadNormWeightArgs& args) {
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    const auto grad_y = head_rows<const T>(access, args.grad_y),
               x = head_rows<const T>(access, args.x);
    const float* const rstd = data<float>(access, args.rstd);
    const simd::Table& table = *state_of(context).table;
    const auto& leaves = table.get<T>();
    const std::int64_t d = args.grad_weight.dim(0), rows = args.x.rows.dim(0);
    // Each sum runs over the heads, and for each head over its rows, in order.
    by_dtype(args.grad_weight.dtype(), [&]<class U>(U*) {
      U* const weight = data<U>(access, args.grad_weight);
      parallel_elements(
          context, d, grain_rows(args.heads * rows), [&](std::int64_t begin, std::int64_t end) {
            std::vector<float> sums(static_cast<std::size_t>(end - begin), 0.0f);
            for (std::int64_t head = 0; head < args.heads; ++head) {
              const std::int64_t at = head * d + begin;
              leaves.norm_weight(grad_y.from(0, at), x.from(0, at), nullptr, rstd + head * rows,
                                 rows, end - begin, sums.data(), nullptr);
            }
            table.f32.add_to(sums.data(), weight + begin, end - begin);
          });
    });
  });
}

void row_dots(const Access& access, Context& context, const RowDotsArgs& args) {
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    const auto xs = head_rows<const T>(access, args.x), ys = head_rows<const T>(access, args.y);
    const T* const weight = args.weight ? data<T>(access, args.weight) : nullptr;
    float* const dots = data<float>(access, args.dots);
    const std::int64_t columns = args.columns;
    context.team().parallel_for(
        args.x.rows.dim(0), grain_rows(columns), [&](std::int64_t begin, std::int64_t end) {
          constexpr std::int64_t lanes = 16;
          for (std::int64_t t = begin; t < end; ++t) {
            const T *const x = xs.at(t), *const y = ys.at(t);
            float sums[lanes] = {};
            const auto term = [&](std::int64_t c) {
              const float product = static_cast<float>(x[c]) * static_cast<float>(y[c]);
              return weight == nullptr ? product : product * static_cast<float>(weight[c]);
            };
            std::int64_t c = 0;
            for (; c + lanes <= columns; c += lanes) {
              for (std::int64_t j = 0; j < lanes; ++j) sums[j] += term(c + j);
            }
            double total = 0;
            for (; c < columns; ++c) total += term(c);
            for (const float sum : sums) total += sum;
            dots[t] = static_cast<float>(total);
          }
        });
  });
}

void row_norm_forward(const Access& access, Context& context, const RowNormArgs& args) {
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    const auto xs = head_rows<const T>(access, args.x);
    const auto ys = head_rows<T>(access, args.y);
    const T* const weight = data<T>(access, args.weight);
    const float* const squares = data<float>(access, args.squares);
    float* const rstd = data<float>(access, args.rstd);
    const std::int64_t columns = args.weight.dim(0);
    const auto all = static_cast<float>(args.all_columns);
    context.team().parallel_for(
        args.x.rows.dim(0), grain_rows(columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            const T* const x = xs.at(t);
            T* const y = ys.at(t);
            const float scale = 1 / std::sqrt(squares[t] / all + args.epsilon);
            rstd[t] = scale;
            for (std::int64_t c = 0; c < columns; ++c) {
              y[c] =
                  static_cast<T>(static_cast<float>(x[c]) * scale * static_cast<float>(weight[c]));
            }
          }
        });
  });
}

void row_norm_backward_input(const Access& access, Context& context,
                             const RowNormBackwardArgs& args) {
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    const auto grads = head_rows<const T>(access, args.grad_y),
               xs = head_rows<const T>(access, args.x);
    const auto to = head_rows<T>(access, args.grad_x);
    const T* const weight = data<T>(access, args.weight);
    const float *const rstd = data<float>(access, args.rstd), *const dots =
                                                                  data<float>(access, args.dots);
    const std::int64_t columns = args.weight.dim(0);
    const auto all = static_cast<float>(args.all_columns);
    context.team().parallel_for(
        args.x.rows.dim(0), grain_rows(columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            const T *const grad = grads.at(t), *const x = xs.at(t);
            T* const grad_x = to.at(t);
            const float scale = rstd[t], along = scale * dots[t] / all;
            for (std::int64_t c = 0; c < columns; ++c) {
              const float normed = static_cast<float>(x[c]) * scale;
              const float grad_normed = static_cast<float>(grad[c]) * static_cast<float>(weight[c]);
              grad_x[c] = static_cast<T>(scale * (grad_normed - normed * along));
            }
          }
        });
  });
}

}  // namespace trident::cpu

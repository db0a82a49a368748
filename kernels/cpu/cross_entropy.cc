#include "kernels/cross_entropy.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {
namespace {

// The label's column on this rank, or -1.
std::int64_t column_of(const CrossEntropyShape& shape, std::int32_t label) {
  const std::int64_t column = label - shape.begin;
  return column >= 0 && column < shape.valid ? column : -1;
}

float uniform_part(const CrossEntropyShape& shape) {
  return shape.label_smoothing / static_cast<float>(shape.vocabulary);
}

}  // namespace

void cross_entropy_maximum(const Access& access, Context& context, const CrossEntropyShape& shape,
                           const Tensor& logits, const Tensor& maximum) {
  by_dtype(logits.dtype(), [&]<class T>(T*) {
    const T* const x = data<T>(access, logits);
    float* const to = data<float>(access, maximum);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t columns = logits.dim(1);
    context.team().parallel_for(logits.dim(0), grain_rows(columns),
                                [&](std::int64_t begin, std::int64_t end) {
                                  for (std::int64_t t = begin; t < end; ++t) {
                                    to[t] = leaves.maximum(x + t * columns, shape.valid);
                                  }
                                });
  });
}

void cross_entropy_statistics(const Access& access, Context& context,
                              const CrossEntropyShape& shape, const Tensor& logits,
                              const Tensor& labels, const Tensor& maximum,
                              const Tensor& statistics) {
  by_dtype(logits.dtype(), [&]<class T>(T*) {
    const T* const x = data<T>(access, logits);
    const std::int32_t* const label = data<std::int32_t>(access, labels);
    const float* const largest = data<float>(access, maximum);
    float* const to = data<float>(access, statistics);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t rows = logits.dim(0), columns = logits.dim(1);
    context.team().parallel_for(
        rows, grain_rows(columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            if (label[t] < 0) {
              to[t] = shape.begin == 0 ? 1.0f : 0.0f;
              to[rows + t] = to[2 * rows + t] = 0;
              continue;
            }
            float totals[2];
            leaves.shifted_sums(x + t * columns, shape.valid, largest[t], totals);
            const std::int64_t target = column_of(shape, label[t]);
            to[t] = totals[0];
            to[rows + t] =
                target < 0 ? 0.0f : static_cast<float>(x[t * columns + target]) - largest[t];
            to[2 * rows + t] = shape.label_smoothing > 0 ? totals[1] : 0.0f;
          }
        });
  });
}

void cross_entropy_losses(const Access& access, Context&, const CrossEntropyShape& shape,
                          const Tensor& statistics, const Tensor& losses) {
  const float* const from = data<float>(access, statistics);
  float* const to = data<float>(access, losses);
  const std::int64_t rows = losses.dim(0);
  const double smoothing = shape.label_smoothing;
  for (std::int64_t t = 0; t < rows; ++t) {
    to[t] = static_cast<float>(
        std::log(static_cast<double>(from[t])) - (1 - smoothing) * from[rows + t] -
        smoothing / static_cast<double>(shape.vocabulary) * from[2 * rows + t]);
  }
}

void cross_entropy_gradient(const Access& access, Context& context, const CrossEntropyShape& shape,
                            const Tensor& logits, const Tensor& labels, const Tensor& maximum,
                            const Tensor& statistics, float scale) {
  by_dtype(logits.dtype(), [&]<class T>(T*) {
    T* const x = data<T>(access, logits);
    const std::int32_t* const label = data<std::int32_t>(access, labels);
    const float *const largest = data<float>(access, maximum), *const totals =
                                                                   data<float>(access, statistics);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t columns = logits.dim(1);
    const float uniform = uniform_part(shape);
    context.team().parallel_for(
        logits.dim(0), grain_rows(columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            T* const row = x + t * columns;
            if (label[t] < 0) {
              std::fill(row, row + columns, T(0.0f));
              continue;
            }
            const std::int64_t target = column_of(shape, label[t]);
            float at_target = 0;
            if (target >= 0) {  // from the logit: a bf16 gradient is already rounded
              const float p = std::exp(static_cast<float>(row[target]) - largest[t]) / totals[t];
              at_target = scale * (p - (1 - shape.label_smoothing) - uniform);
            }
            leaves.softmax_gradient(row, shape.valid, largest[t], totals[t], uniform, scale);
            if (target >= 0) row[target] = T(at_target);
            std::fill(row + shape.valid, row + columns, T(0.0f));
          }
        });
  });
}

}  // namespace trident::cpu

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"
#include "kernels/optimizer.h"

namespace trident::cpu {
namespace {

constexpr double variance_floor = 0x1p-23;  // torch's eps1: the spacing of fp32 at 1
constexpr double smallest_rms = 1e-3;       // of the weights; torch's eps2

// The contiguous range of row `row` that lies in the part: columns [begin, end), which may be
// empty.
struct Range {
  std::int64_t row, begin, end;
  std::int64_t at;  // offset of `begin` in the part's elements
};
Range range_of(const AdafactorPart& part, std::int64_t row) {
  const std::int64_t first = row * part.columns;
  const std::int64_t begin = std::max(part.begin, first);
  const std::int64_t end = std::min(part.begin + part.weight.numel(), first + part.columns);
  return {row, begin - first, end - first, begin - part.begin};
}
std::int64_t first_row(const AdafactorPart& part) {
  return part.begin / part.columns;
}
std::int64_t rows_of(const AdafactorPart& part) {
  return (part.begin + part.weight.numel() - 1) / part.columns - first_row(part) + 1;
}

constexpr std::int64_t panel = 256;          // columns
constexpr std::int64_t weight_block = 4096;  // elements
std::int64_t panels_of(const AdafactorPart& part) {
  return (part.columns + panel - 1) / panel;
}

// Sum of f(i) over [0, n), in an order that does not depend on the number of threads.
template <class F>
double ordered_sum(const Access& access, Context& context, std::int64_t n, std::int64_t grain,
                   const F& f) {
  auto* const parts = reinterpret_cast<double*>(
      state_of(context).scratch(access, context, n * static_cast<std::int64_t>(sizeof(double))));
  context.team().parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) parts[i] = f(i);
  });
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += parts[i];
  return sum;
}

simd::AdafactorStep step_of(const AdafactorPart& part) {
  return {.gradient_scale = part.gradient_scale,
          .decay = 1,
          .step_size = 0,
          .smallest = static_cast<float>(variance_floor * variance_floor)};
}

}  // namespace

void reserve_adafactor_squares(const Access& access, Context& context,
                               const AdafactorSquares& args) {
  const std::int64_t n = args.part.weight.numel();
  const std::int64_t doubles =
      std::max((n + weight_block - 1) / weight_block,
               args.rows ? rows_of(args.part) * panels_of(args.part) : std::int64_t{0});
  state_of(context).scratch(access, context, doubles * static_cast<std::int64_t>(sizeof(double)));
}
void reserve_adafactor_size(const Access& access, Context& context, const AdafactorSize& args) {
  if (!args.factors) return;
  state_of(context).scratch(access, context,
                            rows_of(args.part) * static_cast<std::int64_t>(sizeof(double)));
}

void adafactor_squares(const Access& access, Context& context, const AdafactorSquares& args) {
  const AdafactorPart& part = args.part;
  const simd::Table& table = *state_of(context).table;
  const float* const weight = data<float>(access, part.weight);
  const std::int64_t n = part.weight.numel();
  constexpr std::int64_t block = weight_block;
  *data<double>(access, args.weights) +=
      ordered_sum(access, context, (n + block - 1) / block, 4, [&](std::int64_t i) {
        return table.f32.square_sum(weight + i * block, std::min(block, n - i * block));
      });
  if (!args.rows) return;
  // Threads work on panels of columns in parallel; each panel takes all rows in order.
  const std::int64_t rows = rows_of(part), panels = panels_of(part);
  auto* const sums = reinterpret_cast<double*>(state_of(context).scratch(
      access, context, rows * panels * static_cast<std::int64_t>(sizeof(double))));
  double *const to_rows = data<double>(access, args.rows) + first_row(part), *const to_columns =
                                                                                 data<double>(
                                                                                     access,
                                                                                     args.columns);
  by_dtype(part.gradient.dtype(), [&]<class T>(T*) {
    const T* const gradient = data<T>(access, part.gradient);
    const auto& leaves = table.get<T>();
    context.team().parallel_for(
        panels, grain_rows(rows * panel), [&](std::int64_t from, std::int64_t to) {
          for (std::int64_t p = from; p < to; ++p) {
            for (std::int64_t row = 0; row < rows; ++row) {
              const Range s = range_of(part, first_row(part) + row);
              const std::int64_t begin = std::max(s.begin, p * panel);
              const std::int64_t end = std::min(s.end, (p + 1) * panel);
              sums[row * panels + p] =
                  begin < end ? leaves.adafactor_squares(gradient + s.at + begin - s.begin,
                                                         part.gradient_scale, to_columns + begin,
                                                         end - begin)
                              : 0;
            }
          }
        });
  });
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t p = 0; p < panels; ++p) to_rows[row] += sums[row * panels + p];
  }
}

void adafactor_factors(const Access& access, Context&, const AdafactorFactors& args) {
  const auto move = [&](const Tensor& sums, const Tensor& state, std::int64_t count) {
    const double* const from = data<double>(access, sums);
    float* const to = data<float>(access, state);
    double total = 0;
    for (std::int64_t i = 0; i < state.numel(); ++i) {
      const auto mean = static_cast<float>(from[i] / static_cast<double>(count));
      to[i] += args.rate * (mean - to[i]);
      total += static_cast<double>(to[i]);
    }
    return total;
  };
  const double rows = move(args.row_sums, args.row_state, args.column_count);
  const double columns = move(args.column_sums, args.column_state, args.row_count);
  const double mean = args.mean_of_rows ? rows / static_cast<double>(args.row_count)
                                        : columns / static_cast<double>(args.column_count);
  const double inverse = 1 / std::max(mean, variance_floor);
  const float* const state = data<float>(access, args.row_state);
  float* const factors = data<float>(access, args.factors);
  for (std::int64_t i = 0; i < args.factors.numel(); ++i) {
    factors[i] = static_cast<float>(static_cast<double>(state[i]) * inverse);
  }
}

void adafactor_size(const Access& access, Context& context, const AdafactorSize& args) {
  const AdafactorPart& part = args.part;
  float* const state = data<float>(access, args.column_state);
  const simd::AdafactorStep step = step_of(part);
  double& size = *data<double>(access, args.size);
  by_dtype(part.gradient.dtype(), [&]<class T>(T*) {
    const T* const gradient = data<T>(access, part.gradient);
    const auto& leaves = state_of(context).table->get<T>();
    if (!args.factors) {  // vectors are short
      const std::int64_t n = part.weight.numel();
      for (std::int64_t i = 0; i < n; ++i) {
        const float g = static_cast<float>(gradient[i]) * part.gradient_scale;
        state[i] += args.rate * (g * g - state[i]);
      }
      size += leaves.adafactor_size(step, gradient, 1.0f, state, n);
      return;
    }
    const float* const factors = data<float>(access, args.factors);
    size +=
        ordered_sum(access, context, rows_of(part), grain_rows(part.columns), [&](std::int64_t i) {
          const Range s = range_of(part, first_row(part) + i);
          return leaves.adafactor_size(step, gradient + s.at, factors[s.row], state + s.begin,
                                       s.end - s.begin);
        });
  });
}

void adafactor_update(const Access& access, Context& context, const AdafactorUpdate& args) {
  const AdafactorPart& part = args.part;
  const double* const sizes = data<double>(access, args.sizes);
  const auto rms = [&](double squares) {
    return std::sqrt(squares / static_cast<double>(args.count));
  };
  const double rate = std::min(args.learning_rate, 1 / std::sqrt(static_cast<double>(args.step)));
  simd::AdafactorStep step = step_of(part);
  step.decay = static_cast<float>(1 - args.learning_rate * args.weight_decay);
  step.step_size = static_cast<float>(rate * std::max(smallest_rms, rms(sizes[1])) /
                                      std::max(1.0, rms(sizes[0])));
  float* const weight = data<float>(access, part.weight);
  const float* const state = data<float>(access, args.column_state);
  const float* const factors = data<float>(access, args.factors);
  const simd::ModelWeight model = model_weight(access, part.model_weight);
  by_dtype(part.gradient.dtype(), [&]<class T>(T*) {
    const T* const gradient = data<T>(access, part.gradient);
    const auto& leaves = state_of(context).table->get<T>();
    if (!factors) {
      leaves.adafactor_update(step, weight, gradient, 1.0f, state, model, part.weight.numel());
      return;
    }
    context.team().parallel_for(
        rows_of(part), grain_rows(part.columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            const Range s = range_of(part, first_row(part) + i);
            leaves.adafactor_update(step, weight + s.at, gradient + s.at, factors[s.row],
                                    state + s.begin, model.from(s.at), s.end - s.begin);
          }
        });
  });
}

}  // namespace trident::cpu

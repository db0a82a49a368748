#include "kernels/experts.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {

void sort_by_expert(const Access& access, Context&, const SortByExpertArgs& args) {
  const std::int64_t count = args.experts.numel(), experts = args.ends.dim(0);
  const auto* const chosen = data<std::int32_t>(access, args.experts);
  auto* const ends = data<std::int64_t>(access, args.ends);
  auto* const rows = data<std::int32_t>(access, args.rows);
  auto* const pairs = data<std::int32_t>(access, args.pairs);
  const auto has_row = [&](std::int64_t i) { return chosen[i] >= 0 && chosen[i] < experts; };
  std::fill(ends, ends + experts, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    if (has_row(i)) ++ends[chosen[i]];
  }
  std::vector<std::int64_t> next;
  std::int64_t total = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    next.push_back(total);
    ends[e] = total += ends[e];
  }
  for (std::int64_t i = 0; i < count; ++i) {
    rows[i] = -1;
    if (!has_row(i)) continue;
    const std::int64_t row = next[static_cast<std::size_t>(chosen[i])]++;
    rows[i] = static_cast<std::int32_t>(row);
    pairs[row] = static_cast<std::int32_t>(i);
  }
  std::fill(pairs + total, pairs + count, -1);
}

void drop_pairs(const Access& access, Context&, const DropPairsArgs& args) {
  const std::int64_t topk = args.experts.dim(1), experts = args.counts.dim(1);
  const auto* const chosen = data<std::int32_t>(access, args.experts);
  auto* const counts = data<std::int64_t>(access, args.counts);
  auto* const kept = data<std::int32_t>(access, args.kept);
  for (std::int64_t i = 0; i < args.experts.numel(); ++i) {
    const std::int64_t sample = (args.first_row + i / topk) / args.sequence;
    const bool fits = ++counts[sample * experts + chosen[i]] <= args.capacity;
    kept[i] = fits ? chosen[i] : -1;
  }
}

void gather_rows(const Access& access, Context& context, const GatherRowsArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, args.x);
    const auto* const indices = data<std::int32_t>(access, args.indices);
    T* const to = data<T>(access, args.y);
    const std::int64_t columns = args.x.dim(1);
    context.team().parallel_for(
        args.y.dim(0), grain_rows(columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t r = begin; r < end; ++r) {
            if (indices[r] < 0) {
              std::fill_n(to + r * columns, columns, T{});
            } else {
              std::copy_n(from + indices[r] / args.divisor * columns, columns, to + r * columns);
            }
          }
        });
  });
}

void sum_rows(const Access& access, Context& context, const SumRowsArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, args.x);
    const auto* const rows = data<std::int32_t>(access, args.rows);
    T* const to = data<T>(access, args.y);
    const std::int64_t columns = args.x.dim(1), topk = args.rows.dim(1);
    const auto& leaves = state_of(context).table->get<T>();
    context.team().parallel_for(args.y.dim(0), grain_rows(topk * columns),
                                [&](std::int64_t begin, std::int64_t end) {
                                  constexpr std::int64_t piece = 1024;
                                  float sums[piece];
                                  for (std::int64_t t = begin; t < end; ++t) {
                                    for (std::int64_t at = 0; at < columns; at += piece) {
                                      const std::int64_t n = std::min(piece, columns - at);
                                      T* const y = to + t * columns + at;
                                      std::fill_n(sums, n, 0.0f);
                                      if (args.accumulate) leaves.to_f32(y, sums, n);
                                      for (std::int64_t k = 0; k < topk; ++k) {
                                        const std::int64_t row = rows[t * topk + k];
                                        if (row >= 0)
                                          leaves.accumulate(from + row * columns + at, sums, n);
                                      }
                                      leaves.from_f32(sums, y, n);
                                    }
                                  }
                                });
  });
}

namespace {

// A unit of two numbers, with the values that backward needs.
struct Unit {
  float gate = 0, up = 0, value = 0;                // after the limits and the shift
  float gate_slope = 0, up_slope = 0, sigmoid = 0;  // 0 or 1 behind the limits
};

Unit unit_of(const GatedUnit& unit, float gate, float up) {
  Unit u{.gate_slope = 1, .up_slope = 1};
  if (unit.limit > 0) {
    u.gate_slope = gate > unit.limit ? 0 : 1;
    u.up_slope = std::fabs(up) > unit.limit ? 0 : 1;
    // NaN stays NaN.
    gate = gate > unit.limit ? unit.limit : gate;
    up = up > unit.limit ? unit.limit : up < -unit.limit ? -unit.limit : up;
  }
  u.gate = gate;
  u.up = up + unit.shift;
  u.sigmoid = 1 / (1 + std::exp(-unit.alpha * gate));
  u.value = u.up * (gate * u.sigmoid);
  return u;
}

// Where the gate and the up value of element i lie in a row of 2F.
struct Columns {
  std::int64_t step, up;
  Columns(const GatedUnit& unit, std::int64_t f)
      : step(unit.interleaved ? 2 : 1), up(unit.interleaved ? 1 : f) {}
};

void gated_units(const Access& access, Context& context, const ExpertActivationArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, args.x);
    const auto* const weights = data<float>(access, args.weights);
    T* const to = data<T>(access, args.y);
    const std::int64_t f = args.y.dim(1);
    const Columns at(args.unit, f);
    context.team().parallel_for(
        args.y.dim(0), grain_rows(f), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t r = begin; r < end; ++r) {
            const T* const row = from + r * 2 * f;
            for (std::int64_t i = 0; i < f; ++i) {
              const Unit u = unit_of(args.unit, static_cast<float>(row[i * at.step]),
                                     static_cast<float>(row[i * at.step + at.up]));
              to[r * f + i] = static_cast<T>(weights[r] * u.value);
            }
          }
        });
  });
}

void gated_units_backward(const Access& access, Context& context,
                          const ExpertActivationBackwardArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T *const from = data<T>(access, args.x), *const grad = data<T>(access, args.grad_y);
    const auto* const weights = data<float>(access, args.weights);
    T *const to = data<T>(access, args.grad_x), *const y = data<T>(access, args.y);
    auto* const grad_weights = data<float>(access, args.grad_weights);
    const std::int64_t f = args.grad_y.dim(1);
    const Columns at(args.unit, f);
    context.team().parallel_for(
        args.grad_y.dim(0), grain_rows(f), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t r = begin; r < end; ++r) {
            double of_weight = 0;
            for (std::int64_t i = 0; i < f; ++i) {
              const std::int64_t gate = r * 2 * f + i * at.step, up = gate + at.up;
              const Unit u =
                  unit_of(args.unit, static_cast<float>(from[gate]), static_cast<float>(from[up]));
              const auto dy = static_cast<float>(grad[r * f + i]);
              const float scaled = dy * weights[r];
              of_weight += static_cast<double>(dy) * static_cast<double>(u.value);
              const float slope = u.sigmoid * (1 + args.unit.alpha * u.gate * (1 - u.sigmoid));
              to[gate] = static_cast<T>(scaled * u.up * slope * u.gate_slope);
              to[up] = static_cast<T>(scaled * (u.gate * u.sigmoid) * u.up_slope);
              y[r * f + i] = static_cast<T>(weights[r] * u.value);
            }
            grad_weights[r] = static_cast<float>(of_weight);
          }
        });
  });
}

}  // namespace

void expert_activation(const Access& access, Context& context, const ExpertActivationArgs& args) {
  if (!args.unit.is_swiglu()) return gated_units(access, context, args);
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, args.x);
    const auto* const weights = data<float>(access, args.weights);
    T* const to = data<T>(access, args.y);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t f = args.y.dim(1);
    context.team().parallel_for(args.y.dim(0), grain_rows(f),
                                [&](std::int64_t begin, std::int64_t end) {
                                  for (std::int64_t r = begin; r < end; ++r) {
                                    const T* const row = from + r * 2 * f;
                                    leaves.weighted_swiglu(row, row + f, weights[r], to + r * f, f);
                                  }
                                });
  });
}

void expert_activation_backward(const Access& access, Context& context,
                                const ExpertActivationBackwardArgs& args) {
  if (!args.unit.is_swiglu()) return gated_units_backward(access, context, args);
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T *const from = data<T>(access, args.x), *const grad = data<T>(access, args.grad_y);
    const auto* const weights = data<float>(access, args.weights);
    T *const to = data<T>(access, args.grad_x), *const y = data<T>(access, args.y);
    auto* const grad_weights = data<float>(access, args.grad_weights);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t f = args.grad_y.dim(1);
    context.team().parallel_for(
        args.grad_y.dim(0), grain_rows(f), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t r = begin; r < end; ++r) {
            const T* const row = from + r * 2 * f;
            T* const out = to + r * 2 * f;
            grad_weights[r] = leaves.weighted_swiglu_backward(
                row, row + f, weights[r], grad + r * f, out, out + f, y + r * f, f);
          }
        });
  });
}

namespace {

float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

void gate_rows(const Access& access, Context& context, const GateRowsArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T *const from = data<T>(access, args.x), *const gates = data<T>(access, args.gates);
    T* const to = data<T>(access, args.y);
    const std::int64_t h = args.x.dim(1);
    context.team().parallel_for(
        args.x.dim(0), grain_rows(h), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            const float gate = sigmoid(static_cast<float>(gates[t]));
            for (std::int64_t i = t * h; i < (t + 1) * h; ++i) {
              to[i] =
                  static_cast<T>(static_cast<float>(to[i]) + gate * static_cast<float>(from[i]));
            }
          }
        });
  });
}

void gate_rows_backward(const Access& access, Context& context, const GateRowsBackwardArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T *const from = data<T>(access, args.x), *const gates = data<T>(access, args.gates),
                   *const grad = data<T>(access, args.grad_y);
    T *const to = data<T>(access, args.grad_x), *const grad_gates =
                                                    data<T>(access, args.grad_gates);
    const std::int64_t h = args.x.dim(1);
    context.team().parallel_for(
        args.x.dim(0), grain_rows(h), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            const float gate = sigmoid(static_cast<float>(gates[t]));
            double dot = 0;
            for (std::int64_t i = t * h; i < (t + 1) * h; ++i) {
              const auto dy = static_cast<float>(grad[i]);
              dot += static_cast<double>(dy) * static_cast<double>(static_cast<float>(from[i]));
              to[i] = static_cast<T>(gate * dy);
            }
            grad_gates[t] = static_cast<T>(static_cast<float>(dot) * gate * (1 - gate));
          }
        });
  });
}

}  // namespace trident::cpu

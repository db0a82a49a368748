#include "kernels/grouped_bias.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {
namespace {

// The expert of each row, in ascending rows.
class ExpertOfRow {
 public:
  ExpertOfRow(const std::int64_t* ends, std::int64_t groups, std::int64_t experts,
              std::int64_t first)
      : ends_(ends),
        experts_(experts),
        group_(std::upper_bound(ends, ends + groups, first) - ends) {}
  std::int64_t of(std::int64_t row) {
    while (ends_[group_] <= row) ++group_;
    return group_ % experts_;
  }

 private:
  const std::int64_t* ends_;
  std::int64_t experts_, group_;
};

}  // namespace

void grouped_bias(const Access& access, Context& context, const GroupedBiasArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T* const bias = data<T>(access, args.bias);
    const auto* const weights = args.weights ? data<float>(access, args.weights) : nullptr;
    const auto* const ends = data<std::int64_t>(access, args.ends);
    T* const x = data<T>(access, args.x);
    const std::int64_t n = args.x.dim(1), groups = args.ends.dim(0), experts = args.bias.dim(0);
    context.team().parallel_for(
        ends[groups - 1], grain_rows(n), [&](std::int64_t begin, std::int64_t end) {
          ExpertOfRow rows(ends, groups, experts, begin);
          for (std::int64_t r = begin; r < end; ++r) {
            const T* const own = bias + rows.of(r) * n;
            const float weight = weights != nullptr ? weights[r] : 1.0f;
            for (std::int64_t i = 0; i < n; ++i) {
              x[r * n + i] = static_cast<T>(static_cast<float>(x[r * n + i]) +
                                            weight * static_cast<float>(own[i]));
            }
          }
        });
  });
}

namespace {

template <class T, class G>
void add_bias_gradient(const Access& access, Context& context,
                       const GroupedBiasBackwardArgs& args) {
  const T* const grad = data<T>(access, args.grad);
  const auto* const weights = args.weights ? data<float>(access, args.weights) : nullptr;
  const auto* const ends = data<std::int64_t>(access, args.ends);
  G* const into = data<G>(access, args.grad_bias);
  const std::int64_t n = args.grad.dim(1), groups = args.ends.dim(0);
  const std::int64_t experts = args.grad_bias.dim(0);
  context.team().parallel_for(experts, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> sums(static_cast<std::size_t>(n));
    for (std::int64_t e = begin; e < end; ++e) {
      for (std::int64_t group = e; group < groups; group += experts) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (std::int64_t r = group > 0 ? ends[group - 1] : 0; r < ends[group]; ++r) {
          const float weight = weights != nullptr ? weights[r] : 1.0f;
          for (std::int64_t i = 0; i < n; ++i) {
            sums[static_cast<std::size_t>(i)] += weight * static_cast<float>(grad[r * n + i]);
          }
        }
        for (std::int64_t i = 0; i < n; ++i) {
          G& to = into[e * n + i];
          to = static_cast<G>(static_cast<float>(to) + sums[static_cast<std::size_t>(i)]);
        }
      }
    }
  });
}

}  // namespace

void grouped_bias_backward(const Access& access, Context& context,
                           const GroupedBiasBackwardArgs& args) {
  by_dtype(args.grad.dtype(), [&]<class T>(T*) {
    if (args.grad_bias) {
      by_dtype(args.grad_bias.dtype(),
               [&]<class G>(G*) { add_bias_gradient<T, G>(access, context, args); });
    }
    if (!args.grad_weights) return;
    const T* const grad = data<T>(access, args.grad);
    const T* const bias = data<T>(access, args.bias);
    const auto* const ends = data<std::int64_t>(access, args.ends);
    auto* const into = data<float>(access, args.grad_weights);
    const std::int64_t n = args.grad.dim(1), groups = args.ends.dim(0);
    context.team().parallel_for(
        ends[groups - 1], grain_rows(n), [&](std::int64_t begin, std::int64_t end) {
          ExpertOfRow rows(ends, groups, args.bias.dim(0), begin);
          for (std::int64_t r = begin; r < end; ++r) {
            const T* const own = bias + rows.of(r) * n;
            double dot = 0;
            for (std::int64_t i = 0; i < n; ++i) {
              dot += static_cast<double>(static_cast<float>(grad[r * n + i])) *
                     static_cast<double>(static_cast<float>(own[i]));
            }
            into[r] += static_cast<float>(dot);
          }
        });
  });
}

}  // namespace trident::cpu

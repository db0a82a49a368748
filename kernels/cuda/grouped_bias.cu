#include "kernels/grouped_bias.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/state.h"

namespace trident::cuda {
namespace {

constexpr int threads = 128;

struct Groups {
  const std::int64_t* ends;
  std::int64_t groups, experts;

  // The expert of a row; -1 behind the last one.
  __device__ std::int64_t expert_of(std::int64_t row) const {
    std::int64_t low = 0, high = groups;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (ends[middle] <= row) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low == groups ? -1 : low % experts;
  }
};

// A block handles a row.
template <class T>
__global__ void __launch_bounds__(threads)
    bias_kernel(Groups groups, const T* bias, const float* weights, std::int64_t columns, T* x) {
  const std::int64_t row = blockIdx.x, expert = groups.expert_of(row);
  if (expert < 0) return;
  const float weight = weights != nullptr ? weights[row] : 1.0f;
  for (std::int64_t i = threadIdx.x; i < columns; i += threads) {
    T& to = x[row * columns + i];
    to = rounded<T>(fmaf(weight, to_float(bias[expert * columns + i]), to_float(to)));
  }
}

// A block handles an expert and a column for each thread.
template <class T, class G>
__global__ void __launch_bounds__(threads)
    grad_bias_kernel(Groups groups, const T* grad, const float* weights, std::int64_t columns,
                     G* grad_bias) {
  const std::int64_t expert = blockIdx.x;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * threads + threadIdx.x;
  if (i >= columns) return;
  G& to = grad_bias[expert * columns + i];
  for (std::int64_t group = expert; group < groups.groups; group += groups.experts) {
    float sum = 0;
    for (std::int64_t r = group > 0 ? groups.ends[group - 1] : 0; r < groups.ends[group]; ++r) {
      sum = fmaf(weights != nullptr ? weights[r] : 1.0f, to_float(grad[r * columns + i]), sum);
    }
    to = rounded<G>(to_float(to) + sum);
  }
}

// A block handles a row.
template <class T>
__global__ void __launch_bounds__(threads)
    grad_weights_kernel(Groups groups, const T* grad, const T* bias, std::int64_t columns,
                        float* grad_weights) {
  const std::int64_t row = blockIdx.x, expert = groups.expert_of(row);
  float dot = 0;
  for (std::int64_t i = threadIdx.x; expert >= 0 && i < columns; i += threads) {
    dot = fmaf(to_float(grad[row * columns + i]), to_float(bias[expert * columns + i]), dot);
  }
  dot = reduce_block<threads, Sum>(dot);
  if (threadIdx.x == 0 && expert >= 0) grad_weights[row] += dot;
}

}  // namespace

void grouped_bias(const Access& access, Context&, const GroupedBiasArgs& args) {
  if (args.x.dim(0) == 0) return;
  const Groups groups{data<std::int64_t>(access, args.ends), args.ends.dim(0), args.bias.dim(0)};
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    start(queue_of(access), blocks_of(args.x.dim(0)), threads, bias_kernel<T>, groups,
          static_cast<const T*>(data<T>(access, args.bias)),
          static_cast<const float*>(args.weights ? data<float>(access, args.weights) : nullptr),
          args.x.dim(1), data<T>(access, args.x));
  });
}

void grouped_bias_backward(const Access& access, Context&, const GroupedBiasBackwardArgs& args) {
  if (args.grad.dim(0) == 0) return;
  const std::int64_t experts = args.grad_bias ? args.grad_bias.dim(0) : args.bias.dim(0);
  const std::int64_t columns = args.grad.dim(1);
  const Groups groups{data<std::int64_t>(access, args.ends), args.ends.dim(0), experts};
  const Queue& queue = queue_of(access);
  by_dtype(args.grad.dtype(), [&]<class T>(T*) {
    const T* const grad = data<T>(access, args.grad);
    if (args.grad_bias) {
      const float* const weights = args.weights ? data<float>(access, args.weights) : nullptr;
      by_dtype(args.grad_bias.dtype(), [&]<class G>(G*) {
        start(queue, blocks_of(experts, ceil_div(columns, threads)), threads,
              grad_bias_kernel<T, G>, groups, grad, weights, columns,
              data<G>(access, args.grad_bias));
      });
    }
    if (!args.grad_weights) return;
    start(queue, blocks_of(args.grad.dim(0)), threads, grad_weights_kernel<T>, groups, grad,
          static_cast<const T*>(data<T>(access, args.bias)), columns,
          data<float>(access, args.grad_weights));
  });
}

}  // namespace trident::cuda

// Sums of many terms in fp64. The order of additions depends on the number of terms and on `wide`,
// never on timing.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/state.h"

namespace trident::cuda {

// F has `template <int N> __device__ double sum(i) const`, which sums the terms of N elements from
// i on.
template <int N, class F>
__global__ void __launch_bounds__(256) chunk_sums(std::int64_t n, F f, double* partial) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * ordered_chunk;
  const std::int64_t end = begin + ordered_chunk < n ? begin + ordered_chunk : n;
  const std::int64_t whole = begin + (end - begin) / N * N;
  double total = 0;
  for (std::int64_t i = begin + threadIdx.x * N; i < whole; i += 256 * N) {
    total += f.template sum<N>(i);
  }
  if (whole + threadIdx.x < end) total += f.template sum<1>(whole + threadIdx.x);
  total = reduce_block<256, Sum>(total);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

// *to := (add ? *to : 0) + the sum of n terms. Runs in one block.
static __global__ void __launch_bounds__(256)
    total_of(std::int64_t n, const double* terms, double* to, bool add) {
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += 256) total += terms[i];
  total = reduce_block<256, Sum>(total);
  if (threadIdx.x == 0) *to = total + (add ? *to : 0.0);
}

// Runs both kernels, with the context's scratch memory.
template <int N, class F>
void ordered_sum(const Access& access, Context& context, std::int64_t n, bool wide, const F& f,
                 double* to, bool add) {
  const Queue& queue = queue_of(access);
  const std::int64_t chunks = ordered_partials(n);
  double* const partial = state_of(context).scratch<double>(access, context, chunks);
  start(queue, blocks_of(chunks), 256, wide ? chunk_sums<N, F> : chunk_sums<1, F>, n, f, partial);
  start(queue, blocks_of(1), 256, total_of, chunks, partial, to, add);
}

}  // namespace trident::cuda

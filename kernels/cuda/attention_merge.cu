#include "kernels/attention.h"
#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"

namespace trident::cuda {
namespace {

// The factors of a query's head, from its log-sum-exps.
struct Merged {
  float keep = 1, take = 0, total = 1, top = -INFINITY;
  __device__ Merged(float own, float part) {
    const float most = fmaxf(own, part);
    if (most == -INFINITY) return;
    top = most;
    keep = expf(own - most);
    take = expf(part - most);
    total = keep + take;
  }
};

template <class T>
struct MergeOut {
  const T* part;
  float* out;
  const float *part_sums, *sums;
  std::int64_t heads, sequence, dim;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t head = i / dim % heads, t = i / dim / heads;
    const std::int64_t at = (t / sequence * heads + head) * sequence + t % sequence;
    const Merged merged(sums[at], part_sums[at]);
    float a[N], b[N];
    load(out + i, a);
    load(part + i, b);
#pragma unroll
    for (int j = 0; j < N; ++j) a[j] = (a[j] * merged.keep + b[j] * merged.take) / merged.total;
    store(out + i, a);
  }
};

struct MergeSums {
  const float* part_sums;
  float* sums;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const Merged merged(sums[i], part_sums[i]);
    sums[i] = merged.top + logf(merged.total);
  }
};

}  // namespace

void merge_attention(const Access& access, Context&, const AttentionMergeArgs& args) {
  const Queue& queue = queue_of(access);
  float* const sums = data<float>(access, args.log_sum_exp);
  const float* const part_sums = data<float>(access, args.part_log_sum_exp);
  by_dtype(args.part.dtype(), [&]<class T>(T*) {
    const MergeOut<T> f{.part = data<T>(access, args.part),
                        .out = data<float>(access, args.out),
                        .part_sums = part_sums,
                        .sums = sums,
                        .heads = args.shape.heads,
                        .sequence = args.shape.sequence,
                        .dim = args.shape.value_dim()};
    constexpr int N = pack_size<T>;
    elementwise<N>(queue, args.out.numel(), aligned(f.part, f.out) && f.dim % N == 0, f);
  });
  elementwise<1>(queue, args.log_sum_exp.numel(), false, MergeSums{part_sums, sums});
}

}  // namespace trident::cuda

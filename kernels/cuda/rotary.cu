#include "kernels/attention.h"
#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/state.h"

namespace trident::cuda {
namespace {

struct FillTable {
  float* table;  // (2, S, D/2)
  std::int64_t sequence, half;
  double base;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const double exponent = -static_cast<double>(i % half) / static_cast<double>(half);
    const double angle = static_cast<double>(i / half) * pow(base, exponent);
    table[i] = static_cast<float>(cos(angle));
    table[sequence * half + i] = static_cast<float>(sin(angle));
  }
};

// Elements count pairs of the A + G heads.
template <class T>
struct Rotate {
  T* qkv;
  const float *cosines, *sines;
  std::int64_t half, heads, row, sequence;
  bool inverse;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t pair = i % half, head = i / half % heads, t = i / half / heads;
    T* const first = qkv + t * row + head * 2 * half + pair;
    const std::int64_t at = t % sequence * half + pair;
    float a[N], b[N], c[N], s[N];
    load(first, a);
    load(first + half, b);
    load(cosines + at, c);
    load(sines + at, s);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float sine = inverse ? -s[j] : s[j];
      const float x = a[j], y = b[j];
      a[j] = fmaf(-y, sine, x * c[j]);
      b[j] = fmaf(x, sine, y * c[j]);
    }
    store(first, a);
    store(first + half, b);
  }
};

}  // namespace

const float* State::rotary_table(const Access& access, Context& context, std::int64_t sequence,
                                 std::int64_t head_dim, float base) {
  if (!rotary_ || rotary_sequence_ != sequence || rotary_head_dim_ != head_dim ||
      rotary_base_ != base) {
    rotary_ = context.empty({2, sequence, head_dim / 2}, DType::f32, Category::workspace);
    rotary_sequence_ = sequence;
    rotary_head_dim_ = head_dim;
    rotary_base_ = base;
    elementwise<1>(
        queue_of(access), sequence * head_dim / 2, true,
        FillTable{data<float>(access, rotary_), sequence, head_dim / 2, static_cast<double>(base)});
  }
  return data<float>(access, rotary_);
}

void rotary(const Access& access, Context& context, const RotaryArgs& args) {
  const AttentionShape& shape = args.shape;
  const float* const table =
      state_of(context).rotary_table(access, context, shape.sequence, shape.head_dim, args.base);
  by_dtype(args.qkv.dtype(), [&]<class T>(T*) {
    const Rotate<T> f{.qkv = data<T>(access, args.qkv),
                      .cosines = table,
                      .sines = table + shape.sequence * shape.head_dim / 2,
                      .half = shape.head_dim / 2,
                      .heads = shape.heads + shape.groups,
                      .row = shape.row(),
                      .sequence = shape.sequence,
                      .inverse = args.inverse};
    constexpr int N = pack_size<T>;
    // A pack lies within the first or the second half of a head.
    elementwise<N>(queue_of(access), shape.batch * shape.sequence * f.heads * f.half,
                   aligned(f.qkv, f.cosines, f.sines) && f.half % N == 0, f);
  });
}

}  // namespace trident::cuda

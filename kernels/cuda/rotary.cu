#include "kernels/rotary.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/state.h"

namespace trident::cuda {
namespace {

struct FillTable {
  float* table;  // (2, S, D/2)
  std::int64_t sequence, half;
  RotaryFrequencies f;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const auto pair = static_cast<double>(i % half);
    const double plain = pow(static_cast<double>(f.base), -pair / static_cast<double>(half));
    const double frequency = f.scaled(plain, pair);
    const double angle = static_cast<double>(i / half) * frequency;
    table[i] = static_cast<float>(cos(angle)) * f.amplitude;
    table[sequence * half + i] = static_cast<float>(sin(angle)) * f.amplitude;
  }
};

template <class T>
struct Rotate {
  T* x;
  const float *cosines, *sines;
  std::int64_t row;               // elements of a token in x
  const std::int32_t* positions;  // of each row; null: begin + the place in the sample
  unsigned sequence, begin;
  int half, pairs;  // pairs in a head, pairs in all heads
  int stride;       // elements from head to head
  bool inverse;
  // The first element of a row's part of a table.
  __device__ std::int64_t row_in_table(unsigned at) const {
    return static_cast<std::int64_t>(
               positions != nullptr ? positions[at] : static_cast<int>(begin + at % sequence)) *
           half;
  }
};

// A block handles one token and some of its pairs, so that no thread divides 64-bit numbers.
template <int N, class T>
__global__ void __launch_bounds__(256, 4) rotate_kernel(Rotate<T> a) {
  const int i = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * N;
  if (i >= a.pairs) return;
  const int pair = i % a.half;
  T* const first =
      a.x + static_cast<std::int64_t>(blockIdx.x) * a.row + i / a.half * a.stride + pair;
  const std::int64_t at = a.row_in_table(blockIdx.x) + pair;
  const Packed<N, T> raw_x = fetch<N>(first), raw_y = fetch<N>(first + a.half);
  float x[N], y[N], c[N], s[N];
  load(a.cosines + at, c);
  load(a.sines + at, s);
  unpack(raw_x, x);
  unpack(raw_y, y);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float sine = a.inverse ? -s[j] : s[j];
    const float before = x[j];
    x[j] = fmaf(-y[j], sine, x[j] * c[j]);
    y[j] = fmaf(before, sine, y[j] * c[j]);
  }
  store(first, x);
  store(first + a.half, y);
}

// The same for pairs of neighbours.
template <class T>
__global__ void __launch_bounds__(256) rotate_neighbours_kernel(Rotate<T> a) {
  const int i = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (i >= a.pairs) return;
  const int pair = i % a.half;
  T* const x =
      a.x + static_cast<std::int64_t>(blockIdx.x) * a.row + i / a.half * a.stride + 2 * pair;
  const std::int64_t at = a.row_in_table(blockIdx.x) + pair;
  const float c = a.cosines[at], s = a.inverse ? -a.sines[at] : a.sines[at];
  const float first = to_float(x[0]), second = to_float(x[1]);
  x[0] = rounded<T>(fmaf(-second, s, first * c));
  x[1] = rounded<T>(fmaf(first, s, second * c));
}

}  // namespace

const float* State::rotary_table(const Access& access, Context& context, const RotaryArgs& args) {
  const std::int64_t positions = args.tabulated(), half = args.head_dim / 2;
  if (!rotary_ || rotary_sequence_ != positions || rotary_head_dim_ != args.head_dim ||
      rotary_frequencies_ != args.frequencies) {
    rotary_ = context.empty({2, positions, half}, DType::f32, Category::workspace);
    rotary_sequence_ = positions;
    rotary_head_dim_ = args.head_dim;
    rotary_frequencies_ = args.frequencies;
    elementwise<1>(queue_of(access), positions * half, true,
                   FillTable{data<float>(access, rotary_), positions, half, args.frequencies});
  }
  return data<float>(access, rotary_);
}

void rotary(const Access& access, Context& context, const RotaryArgs& args) {
  const float* const table = state_of(context).rotary_table(access, context, args);
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    const int half = static_cast<int>(args.head_dim / 2);
    const Rotate<T> a{.x = data<T>(access, args.x.rows) + args.x.begin,
                      .cosines = table,
                      .sines = table + args.tabulated() * half,
                      .row = args.x.rows.dim(1),
                      .positions = data<std::int32_t>(access, args.row_positions),
                      .sequence = static_cast<unsigned>(args.sequence),
                      .begin = static_cast<unsigned>(args.begin),
                      .half = half,
                      .pairs = static_cast<int>(args.heads) * half,
                      .stride = static_cast<int>(args.head_stride()),
                      .inverse = args.inverse};
    constexpr int N = pack_size<T>;
    // With these conditions a pack lies within the first or the second half of a head.
    const bool wide = !args.interleaved && aligned(a.x, a.cosines, a.sines) && half % N == 0 &&
                      a.row % N == 0 && a.stride % N == 0;
    const std::int64_t packs = ceil_div(a.pairs, wide ? N : 1), across = ceil_div(packs, 256);
    const int threads = static_cast<int>(ceil_div(ceil_div(packs, across), 32) * 32);
    start(queue_of(access), blocks_of(args.batch * args.sequence, across), threads,
          args.interleaved ? rotate_neighbours_kernel<T>
          : wide           ? rotate_kernel<N, T>
                           : rotate_kernel<1, T>,
          a);
  });
}

}  // namespace trident::cuda

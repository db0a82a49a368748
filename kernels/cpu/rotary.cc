#include "kernels/rotary.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {

bool State::hold_rotary(Context& context, const RotaryArgs& args) {
  const std::int64_t positions = args.tabulated();
  if (rotary_ && rotary_sequence_ == positions && rotary_head_dim_ == args.head_dim &&
      rotary_frequencies_ == args.frequencies) {
    return false;
  }
  rotary_ = context.empty({2, positions, args.head_dim / 2}, DType::f32, Category::workspace);
  rotary_sequence_ = positions;
  rotary_head_dim_ = args.head_dim;
  rotary_frequencies_ = args.frequencies;
  return true;
}

const float* State::rotary_table(const Access& access, Context& context, const RotaryArgs& args) {
  if (hold_rotary(context, args)) {
    const RotaryFrequencies& f = args.frequencies;
    const std::int64_t positions = args.tabulated(), half = args.head_dim / 2;
    float* const cosines = data<float>(access, rotary_);
    float* const sines = cosines + positions * half;
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency = f.of(i, args.head_dim);
      for (std::int64_t t = 0; t < positions; ++t) {
        const double angle = static_cast<double>(t) * frequency;
        cosines[t * half + i] = static_cast<float>(std::cos(angle)) * f.amplitude;
        sines[t * half + i] = static_cast<float>(std::sin(angle)) * f.amplitude;
      }
    }
  }
  return data<float>(access, rotary_);
}

namespace {

// Rotates the pairs (2i, 2i + 1).
template <class T>
void rotate_neighbours(T* x, const float* cosine, const float* sine, std::int64_t pairs,
                       bool inverse) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float a = static_cast<float>(x[2 * i]), b = static_cast<float>(x[2 * i + 1]);
    const float s = inverse ? -sine[i] : sine[i];
    x[2 * i] = static_cast<T>(a * cosine[i] - b * s);
    x[2 * i + 1] = static_cast<T>(b * cosine[i] + a * s);
  }
}

}  // namespace

void reserve_rotary(const Access&, Context& context, const RotaryArgs& args) {
  state_of(context).hold_rotary(context, args);
}

void rotary(const Access& access, Context& context, const RotaryArgs& args) {
  const std::int64_t half = args.head_dim / 2, s = args.sequence, row = args.x.rows.dim(1);
  const auto* const positions = data<std::int32_t>(access, args.row_positions);
  State& state = state_of(context);
  const float* const cosines = state.rotary_table(access, context, args);
  const float* const sines = cosines + args.tabulated() * half;
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    T* const x = data<T>(access, args.x.rows) + args.x.begin;
    const auto& leaves = state.table->get<T>();
    context.team().parallel_for(
        args.batch * s, grain_rows(row), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t at =
                (positions != nullptr ? positions[t] : args.begin + t % s) * half;
            for (std::int64_t head = 0; head < args.heads; ++head) {
              T* const first = x + t * row + head * args.head_stride();
              if (args.interleaved) {
                rotate_neighbours(first, cosines + at, sines + at, half, args.inverse);
                continue;
              }
              // Rotating back by an angle is the rotation of (second, first) by that angle.
              leaves.rotate(args.inverse ? first + half : first,
                            args.inverse ? first : first + half, cosines + at, sines + at, half);
            }
          }
        });
  });
}

}  // namespace trident::cpu

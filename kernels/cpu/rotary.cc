#include "kernels/rotary.h"

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {

bool State::hold_rotary(Context& context, std::int64_t sequence, std::int64_t head_dim,
                        float base) {
  if (rotary_ && rotary_sequence_ == sequence && rotary_head_dim_ == head_dim &&
      rotary_base_ == base) {
    return false;
  }
  rotary_ = context.empty({2, sequence, head_dim / 2}, DType::f32, Category::workspace);
  rotary_sequence_ = sequence;
  rotary_head_dim_ = head_dim;
  rotary_base_ = base;
  return true;
}

const float* State::rotary_table(const Access& access, Context& context, std::int64_t sequence,
                                 std::int64_t head_dim, float base) {
  if (hold_rotary(context, sequence, head_dim, base)) {
    const std::int64_t half = head_dim / 2;
    float* const cosines = data<float>(access, rotary_);
    float* const sines = cosines + sequence * half;
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(
          static_cast<double>(base), -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      for (std::int64_t t = 0; t < sequence; ++t) {
        const double angle = static_cast<double>(t) * frequency;
        cosines[t * half + i] = static_cast<float>(std::cos(angle));
        sines[t * half + i] = static_cast<float>(std::sin(angle));
      }
    }
  }
  return data<float>(access, rotary_);
}

void reserve_rotary(const Access&, Context& context, const RotaryArgs& args) {
  state_of(context).hold_rotary(context, args.tabulated(), args.shape.head_dim, args.base);
}

void rotary(const Access& access, Context& context, const RotaryArgs& args) {
  const AttentionShape& shape = args.shape;
  const std::int64_t half = shape.head_dim / 2, s = shape.sequence;
  State& state = state_of(context);
  const float* const cosines =
      state.rotary_table(access, context, args.tabulated(), shape.head_dim, args.base);
  const float* const sines = cosines + args.tabulated() * half;
  by_dtype(args.qkv.dtype(), [&]<class T>(T*) {
    T* const qkv = data<T>(access, args.qkv);
    const auto& leaves = state.table->get<T>();
    context.team().parallel_for(
        shape.batch * s, grain_rows(shape.row()), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t at = (args.begin + t % s) * half;
            for (std::int64_t head = 0; head < shape.heads + shape.groups; ++head) {
              T* const first = qkv + t * shape.row() + head * shape.head_dim;
              // Rotating back by an angle is the rotation of (second, first) by that angle.
              leaves.rotate(args.inverse ? first + half : first,
                            args.inverse ? first : first + half, cosines + at, sines + at, half);
            }
          }
        });
  });
}

}  // namespace trident::cpu

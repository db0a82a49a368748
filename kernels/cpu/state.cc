#include "kernels/cpu/state.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/product_cache.h"

namespace trident::cpu {

simd::Isa default_isa() {
  return std::min(simd::best_isa(), product_instructions().isa);
}

State::State()
    : table(&simd::table(default_isa())), native_bf16_products(product_instructions().bf16) {}

State::~State() = default;

std::byte* State::scratch(const Access& access, Context& context, std::int64_t bytes) {
  if (!scratch_ || scratch_.bytes() < bytes) {
    scratch_ = Tensor();  // give the old block back first
    scratch_ = context.empty({bytes}, DType::u8, Category::workspace);
  }
  return static_cast<std::byte*>(TensorAddress::of(access, scratch_));
}

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

std::string instructions() {
  return std::string(name_of(default_isa())) + (product_instructions().bf16 ? " bf16" : "");
}

void use_isa(Context& context, simd::Isa isa) {
  const simd::Table* const table = &simd::table(isa);
  context.stream().enqueue([&context, table](const Access&) {
    State& state = state_of(context);
    state.table = table;
    state.native_bf16_products = table->isa == simd::Isa::avx512 && product_instructions().bf16;
  });
}

}  // namespace trident::cpu

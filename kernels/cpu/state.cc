#include "kernels/cpu/state.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/product_cache.h"

namespace trident::cpu {

simd::Isa default_isa() {
  return std::min(simd::best_isa(), product_instructions().isa);
}

// By the instructions that oneDNN's products use, so that ONEDNN_MAX_CPU_ISA limits both.
static const simd::Bf16Loops* bf16_loops_of([[maybe_unused]] simd::Isa isa) {
#ifndef TRIDENT_ONLY_SSE2
  const ProductInstructions found = product_instructions();
  if (isa != simd::Isa::avx512 || !found.bf16) return nullptr;
  if (found.amx && simd::allows_amx()) return &simd::amx::bf16_loops;
  if (simd::has_avx512_bf16()) return &simd::avx512_bf16::bf16_loops;
#endif
  return nullptr;
}

State::State()
    : table(&simd::table(default_isa())),
      native_bf16_products(product_instructions().bf16),
      bf16_loops(bf16_loops_of(table->isa)) {}

State::~State() = default;

std::byte* State::scratch(const Access& access, Context& context, std::int64_t bytes) {
  if (!scratch_ || scratch_.bytes() < bytes) {
    scratch_ = Tensor();  // free the old block first
    scratch_ = context.empty({bytes}, DType::u8, Category::workspace);
  }
  return static_cast<std::byte*>(TensorAddress::of(access, scratch_));
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
    state.bf16_loops = bf16_loops_of(table->isa);
  });
}

}  // namespace trident::cpu

#include "kernels/cpu/state.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/product_cache.h"

namespace trident::cpu {

simd::Isa default_isa() {
  return std::min(simd::best_isa(), product_instructions().isa);
}

// Whether oneDNN's products and attention's may use AMX.
static bool has_tiles() {
  return product_instructions().amx && simd::allows_amx();
}

State::State()
    : table(&simd::table(default_isa())),
      bf16_tiles(has_tiles()),
      native_bf16_products(product_instructions().bf16) {}

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
    state.bf16_tiles = table->isa == simd::Isa::avx512 && has_tiles();
  });
}

}  // namespace trident::cpu

#include "kernels/cuda/state.h"

#include "kernels/cuda/attention_fused.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/products.h"

namespace trident::cuda {

State::State() : products(make_products()), fused_attention(make_fused_attention()) {}
State::~State() = default;

void* State::scratch_bytes(const Access& access, Context& context, std::int64_t bytes) {
  if (!scratch_ || scratch_.bytes() < bytes) {
    scratch_ = Tensor();  // give the old block back first
    scratch_ = context.empty({bytes}, DType::u8, Category::workspace);
  }
  return TensorAddress::of(access, scratch_);
}

std::string instructions() {
  return "cuda";
}

}  // namespace trident::cuda

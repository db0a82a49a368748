#include "kernels/cuda/state.h"

#include "kernels/cuda/attention_fused.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/products.h"

namespace trident::cuda {

State::State() = default;
State::~State() = default;

Products& State::products() {
  if (!products_) products_ = make_products();
  return *products_;
}
FusedAttention& State::fused_attention() {
  if (!fused_attention_) fused_attention_ = make_fused_attention();
  return *fused_attention_;
}

void* State::scratch_bytes(const Access& access, Context& context, std::int64_t bytes) {
  if (!scratch_ || scratch_.bytes() < bytes) {
    scratch_ = Tensor();  // free the old block first
    scratch_ = context.empty({bytes}, DType::u8, Category::workspace);
  }
  return TensorAddress::of(access, scratch_);
}

std::string instructions() {
  return "cuda";
}

}  // namespace trident::cuda

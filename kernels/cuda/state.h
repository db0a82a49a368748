// What the CUDA kernels keep per rank: scratch memory, the library's handles and plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/context.h"
#include "kernels/cuda/queue.h"

namespace trident::cuda {

class Products;        // cuBLASLt's handle, descriptors and chosen algorithms; gemm_cublaslt.cc
class FusedAttention;  // cuDNN's handle and graphs; attention_cudnn.cc

struct State final : KernelState {
  State();
  ~State() override;

  // Made at the first call, for the calling thread's device.
  Products& products();
  FusedAttention& fused_attention();

  // At least `bytes` of device memory, 64-byte aligned, that the next call of scratch() may take
  // away. Work of one context is in one queue, so what still runs there has it to itself.
  template <class T = std::byte>
  T* scratch(const Access& access, Context& context, std::int64_t count) {
    return static_cast<T*>(
        scratch_bytes(access, context, count * static_cast<std::int64_t>(sizeof(T))));
  }

  // Cosines, then sines, of rotary embedding, (2, S, D/2), made for the last arguments seen.
  const float* rotary_table(const Access& access, Context& context, std::int64_t sequence,
                            std::int64_t head_dim, float base);

 private:
  void* scratch_bytes(const Access& access, Context& context, std::int64_t bytes);

  std::unique_ptr<Products> products_;
  std::unique_ptr<FusedAttention> fused_attention_;
  Tensor scratch_, rotary_;
  std::int64_t rotary_sequence_ = 0, rotary_head_dim_ = 0;
  float rotary_base_ = 0;
};

inline State& state_of(Context& context) {
  return context.kernel_state<State>();
}

}  // namespace trident::cuda

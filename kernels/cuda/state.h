// The state that the CUDA kernels keep per rank: scratch memory, library handles and plans. Only
// stream work of the rank's context uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/context.h"
#include "kernels/cuda/queue.h"
#include "kernels/rotary.h"

namespace trident::cuda {

class Products;        // cuBLASLt's handle, descriptors and chosen algorithms; gemm_cublaslt.cc
class FusedAttention;  // cuDNN's handle and graphs; attention_cudnn.cc

struct State final : KernelState {
  State();
  ~State() override;

  // Created at the first call, for the current device of the calling thread.
  Products& products();
  FusedAttention& fused_attention();

  // Returns device memory for `count` elements, 64-byte aligned. The memory is valid until the next
  // call of scratch(). All work of a context goes to one queue, so kernels that are still enqueued
  // run before a later user of the same memory.
  template <class T = std::byte>
  T* scratch(const Access& access, Context& context, std::int64_t count) {
    return static_cast<T*>(
        scratch_bytes(access, context, count * static_cast<std::int64_t>(sizeof(T))));
  }

  // The table of rotary embedding, (2, S, D/2): cosines, then sines. The table of the last
  // arguments is kept.
  const float* rotary_table(const Access& access, Context& context, const RotaryArgs&);

 private:
  void* scratch_bytes(const Access& access, Context& context, std::int64_t bytes);

  std::unique_ptr<Products> products_;
  std::unique_ptr<FusedAttention> fused_attention_;
  Tensor scratch_, rotary_;
  std::int64_t rotary_sequence_ = 0, rotary_head_dim_ = 0;
  RotaryFrequencies rotary_frequencies_;
};

inline State& state_of(Context& context) {
  return context.kernel_state<State>();
}

}  // namespace trident::cuda

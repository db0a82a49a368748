// Attention by the fused kernels of a library; attention_cudnn.cc implements it with cuDNN. One
// object belongs to one context. Called inside stream work.
#pragma once

#include <memory>

#include "kernels/attention.h"
#include "kernels/cuda/queue.h"

namespace trident::cuda {

class FusedAttention {
 public:
  virtual ~FusedAttention() = default;
  // forward() and backward() return false, and enqueue nothing, if the library has no kernel for
  // the arguments. They throw Error if the library fails.
  virtual bool forward(const Queue&, const Access&, Context&, const AttentionArgs&) = 0;
  virtual bool backward(const Queue&, const Access&, Context&, const AttentionBackwardArgs&) = 0;
};
std::unique_ptr<FusedAttention> make_fused_attention();
int fused_attention_version();  // the library's: 91900 is 9.19.0

}  // namespace trident::cuda

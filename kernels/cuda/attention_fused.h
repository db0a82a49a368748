// Attention by a library's fused kernels; attention_cudnn.cc has them from cuDNN.
#pragma once

#include <memory>

#include "kernels/attention.h"
#include "kernels/cuda/queue.h"

namespace trident::cuda {

class FusedAttention {
 public:
  virtual ~FusedAttention() = default;
  // False where the library has no kernel for it: then nothing was done.
  virtual bool forward(const Queue&, const Access&, Context&, const AttentionArgs&) = 0;
  virtual bool backward(const Queue&, const Access&, Context&, const AttentionBackwardArgs&) = 0;
};
std::unique_ptr<FusedAttention> make_fused_attention();
int fused_attention_version();  // of the library: 91900 is 9.19.0

}  // namespace trident::cuda

// Attention by cuDNN's fused kernels; attention_cudnn.cc.
#pragma once

#include "kernels/attention.h"
#include "kernels/backend.h"

namespace trident::cuda {

// False where cuDNN has no kernel for it: then nothing was done.
bool fused_attention_forward(const Access&, Context&, const AttentionArgs&);
bool fused_attention_backward(const Access&, Context&, const AttentionBackwardArgs&);

}  // namespace trident::cuda

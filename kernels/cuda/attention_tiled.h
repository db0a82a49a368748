// Attention by our own kernels, in fp32 from tiles in shared memory: for what cuDNN does not do
// (fp32, dropout by our masks, other head sizes), and to check it by.
#pragma once

#include "kernels/attention.h"
#include "kernels/backend.h"

namespace trident::cuda {

inline constexpr std::int64_t tiled_head_dim = 256;  // at most

void tiled_attention_forward(const Access&, Context&, const AttentionArgs&);
void tiled_attention_backward(const Access&, Context&, const AttentionBackwardArgs&);

}  // namespace trident::cuda

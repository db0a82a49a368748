// Attention by our own kernels, which compute in fp32 from tiles in shared memory. They cover the
// cases that cuDNN does not (fp32, dropout by our numbers, other head sizes) or is not asked for
// (fused_attention_covers), and serve to check cuDNN. Called inside stream work. A head dimension
// above tiled_head_dim throws Error.
#pragma once

#include "kernels/attention.h"
#include "kernels/backend.h"

namespace trident::cuda {

inline constexpr std::int64_t tiled_head_dim = 256;  // largest supported

void tiled_attention_forward(const Access&, Context&, const AttentionArgs&);
void tiled_attention_backward(const Access&, Context&, const AttentionBackwardArgs&);

}  // namespace trident::cuda

#include "kernels/attention.h"

#include "kernels/cuda/attention_fused.h"
#include "kernels/cuda/attention_tiled.h"
#include "kernels/cuda/kernels.h"

namespace trident::cuda {

void attention_forward(const Access& access, Context& context, const AttentionArgs& args) {
  if (!fused_attention_forward(access, context, args)) {
    tiled_attention_forward(access, context, args);
  }
}

void attention_backward(const Access& access, Context& context, const AttentionBackwardArgs& args) {
  if (!fused_attention_backward(access, context, args)) {
    tiled_attention_backward(access, context, args);
  }
}

}  // namespace trident::cuda

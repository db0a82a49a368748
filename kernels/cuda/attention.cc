#include "kernels/attention.h"

#include "kernels/cuda/attention_fused.h"
#include "kernels/cuda/attention_tiled.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/state.h"

namespace trident::cuda {

void attention_forward(const Access& access, Context& context, const AttentionArgs& args) {
  if (args.shape.batch == 0) return;
  const Queue& queue = queue_of(access);
  if (!state_of(context).fused_attention().forward(queue, access, context, args)) {
    tiled_attention_forward(access, context, args);
  }
}

void attention_backward(const Access& access, Context& context, const AttentionBackwardArgs& args) {
  if (args.forward.shape.batch == 0) return;
  const Queue& queue = queue_of(access);
  if (!state_of(context).fused_attention().backward(queue, access, context, args)) {
    tiled_attention_backward(access, context, args);
  }
}

}  // namespace trident::cuda

// For backends that cannot fuse an epilogue: runs the product, then the epilogue as a kernel of its
// own. Called inside stream work.
#pragma once

#include "kernels/backend.h"

namespace trident {

// Calls product(args) for the product and its bias, without the epilogue.
template <class Product>
void gemm_unfused(const Backend& backend, const Access& access, Context& context,
                  const GemmArgs& args, const Product& product) {
  GemmArgs alone = args;
  alone.pre_activation = alone.gelu_input = alone.bias_gradient = Tensor();
  if (args.pre_activation) alone.c = args.pre_activation;
  product(alone);
  if (args.pre_activation) backend.gelu_forward(access, context, args.pre_activation, args.c);
  if (args.gelu_input) backend.gelu_backward(access, context, args.gelu_input, args.c, args.c);
  if (args.bias_gradient) backend.bias_backward(access, context, args.a, args.bias_gradient);
}

}  // namespace trident

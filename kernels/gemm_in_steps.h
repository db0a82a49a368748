// For backends: a product, and what goes with it by kernels of its own.
#pragma once

#include "kernels/backend.h"

namespace trident {

// product(args) is called for the product alone, with its bias.
template <class Product>
void gemm_in_steps(const Backend& backend, const Access& access, Context& context,
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

// A bias of one type added to a product of another.
#pragma once

#include "core/tensor.h"

namespace trident::cuda {

// y (T, H) += bias (H); each fp32, bf16 or fp16.
void add_bias_to(const Access&, const Tensor& bias, const Tensor& y);

}  // namespace trident::cuda

#include "kernels/backend.h"

#include "kernels/cuda/kernels.h"

namespace trident {

const Backend& cuda_backend() {
  static constexpr Backend backend = {
      .instructions = cuda::instructions,
      .gemm = cuda::gemm,
      .fill = cuda::fill,
      .copy = cuda::copy,
      .add = cuda::add,
      .scale = cuda::scale,
      .lerp = cuda::lerp,
      .add_bias = cuda::add_bias,
      .bias_backward = cuda::bias_backward,
      .sum = cuda::sum,
      .square_sums = cuda::square_sums,
      .exact_sum = cuda::exact_sum,
      .fill_normal = cuda::fill_normal,
      .norm_forward = cuda::norm_forward,
      .norm_backward_input = cuda::norm_backward_input,
      .norm_backward_weight = cuda::norm_backward_weight,
      .gelu_forward = cuda::gelu_forward,
      .gelu_backward = cuda::gelu_backward,
      .swiglu_forward = cuda::swiglu_forward,
      .swiglu_backward = cuda::swiglu_backward,
      .embedding_forward = cuda::embedding_forward,
      .embedding_backward = cuda::embedding_backward,
      .position_forward = cuda::position_forward,
      .position_backward = cuda::position_backward,
      .cross_entropy_maximum = cuda::cross_entropy_maximum,
      .cross_entropy_statistics = cuda::cross_entropy_statistics,
      .cross_entropy_losses = cuda::cross_entropy_losses,
      .cross_entropy = cuda::cross_entropy,
      .cross_entropy_gradient = cuda::cross_entropy_gradient,
      .attention_forward = cuda::attention_forward,
      .append_to_cache = cuda::append_to_cache,
      .attention_cached = cuda::attention_cached,
      .attention_backward = cuda::attention_backward,
      .rotary = cuda::rotary,
      .dropout_add = cuda::dropout_add,
      .adam = cuda::adam,
      .sgd = cuda::sgd,
      .adafactor_squares = cuda::adafactor_squares,
      .adafactor_factors = cuda::adafactor_factors,
      .adafactor_size = cuda::adafactor_size,
      .adafactor_update = cuda::adafactor_update,
      .copy_peer = cuda::copy_peer,
      .reduce_peers = cuda::reduce_peers,
  };
  return backend;
}

}  // namespace trident

#include "kernels/backend.h"

#include "kernels/cpu/kernels.h"

namespace trident {

const Backend& cpu_backend() {
  static constexpr Backend backend = {
      .instructions = cpu::instructions,
      .gemm = cpu::gemm,
      .fill = cpu::fill,
      .copy = cpu::copy,
      .add = cpu::add,
      .scale = cpu::scale,
      .lerp = cpu::lerp,
      .add_bias = cpu::add_bias,
      .bias_backward = cpu::bias_backward,
      .sum = cpu::sum,
      .square_sums = cpu::square_sums,
      .exact_sum = cpu::exact_sum,
      .fill_normal = cpu::fill_normal,
      .norm_forward = cpu::norm_forward,
      .norm_backward_input = cpu::norm_backward_input,
      .norm_backward_weight = cpu::norm_backward_weight,
      .gelu_forward = cpu::gelu_forward,
      .gelu_backward = cpu::gelu_backward,
      .swiglu_forward = cpu::swiglu_forward,
      .swiglu_backward = cpu::swiglu_backward,
      .embedding_forward = cpu::embedding_forward,
      .embedding_backward = cpu::embedding_backward,
      .position_forward = cpu::position_forward,
      .position_backward = cpu::position_backward,
      .cross_entropy_maximum = cpu::cross_entropy_maximum,
      .cross_entropy_statistics = cpu::cross_entropy_statistics,
      .cross_entropy_losses = cpu::cross_entropy_losses,
      .cross_entropy = nullptr,
      .cross_entropy_gradient = cpu::cross_entropy_gradient,
      .attention_forward = cpu::attention_forward,
      .append_to_cache = cpu::append_to_cache,
      .attention_cached = cpu::attention_cached,
      .attention_backward = cpu::attention_backward,
      .rotary = cpu::rotary,
      .dropout_add = cpu::dropout_add,
      .adam = cpu::adam,
      .sgd = cpu::sgd,
      .adafactor_squares = cpu::adafactor_squares,
      .adafactor_factors = cpu::adafactor_factors,
      .adafactor_size = cpu::adafactor_size,
      .adafactor_update = cpu::adafactor_update,
      .copy_peer = cpu::copy_peer,
      .reduce_peers = cpu::reduce_peers,
  };
  return backend;
}

}  // namespace trident

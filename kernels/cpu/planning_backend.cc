#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"

namespace trident {
namespace {

template <class... Args>
void nothing(Args...) {}

}  // namespace

const Backend& planning_cpu_backend() {
  static constexpr Backend backend = {
      .instructions = cpu::instructions,
      .gemm = cpu::reserve_gemm,
      .fill = nothing,
      .copy = nothing,
      .add = nothing,
      .scale = nothing,
      .lerp = nothing,
      .add_bias = nothing,
      .bias_backward = nothing,
      .sum = nothing,
      .square_sums = nothing,
      .square_sums_of_all = nullptr,
      .exact_sum = nothing,
      .fill_normal = nothing,
      .norm_forward = nothing,
      .norm_backward_input = nothing,
      .norm_backward_weight = nothing,
      .head_norm_forward = nothing,
      .head_norm_backward_input = nothing,
      .head_norm_backward_weight = nothing,
      .row_dots = nothing,
      .row_norm_forward = nothing,
      .row_norm_backward_input = nothing,
      .gelu_forward = nothing,
      .gelu_backward = nothing,
      .swiglu_forward = nothing,
      .swiglu_backward = nothing,
      .route = nothing,
      .route_backward = nothing,
      .routing_sums = cpu::reserve_routing_sums,
      .balance = nothing,
      .update_expert_bias = nothing,
      .sort_by_expert = nothing,
      .drop_pairs = nothing,
      .gather_rows = nothing,
      .sum_rows = nothing,
      .expert_activation = nothing,
      .expert_activation_backward = nothing,
      .gate_rows = nothing,
      .gate_rows_backward = nothing,
      .grouped_gemm = cpu::reserve_grouped_gemm,
      .grouped_weight_gemm = cpu::reserve_grouped_weight_gemm,
      .grouped_bias = nothing,
      .grouped_bias_backward = nothing,
      .embedding_forward = nothing,
      .embedding_backward = nothing,
      .position_forward = nothing,
      .position_backward = nothing,
      .cross_entropy_maximum = nothing,
      .cross_entropy_statistics = nothing,
      .cross_entropy_losses = nothing,
      .cross_entropy = nullptr,
      .cross_entropy_gradient = nothing,
      .attention_forward = cpu::reserve_attention_forward,
      .append_to_cache = [](const Access&, Context&, const CacheArgs&) {},
      .attention_cached = cpu::reserve_attention_cached,
      .attention_backward = cpu::reserve_attention_backward,
      .merge_attention = nothing,
      .copy_heads = nothing,
      .sum_heads = nothing,
      .rotary = cpu::reserve_rotary,
      .dropout_add = nothing,
      .adam = nothing,
      .sgd = nothing,
      .adam_of_all = nullptr,
      .sgd_of_all = nullptr,
      .adafactor_squares = cpu::reserve_adafactor_squares,
      .adafactor_factors = nothing,
      .adafactor_size = cpu::reserve_adafactor_size,
      .adafactor_update = nothing,
      .copy_peer = nothing,
      .reduce_peers = nothing,
  };
  return backend;
}

}  // namespace trident

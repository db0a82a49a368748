// What a kind of device implements, and the one place that chooses between them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "core/context.h"
#include "core/operation_trace.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/peers.h"

namespace trident {

// Stream work, one entry for each function of kernels/*.h. Shapes and dtypes are checked already.
struct Backend {
  using A = const Access&;
  using C = Context&;
  using T = const Tensor&;
  std::string (*instructions)();  // what its kernels use on this machine, for reports
  void (*gemm)(A, C, const GemmArgs&);
  void (*fill)(A, C, T x, double value);
  void (*copy)(A, C, T from, T to);
  void (*add)(A, C, T x, T y);
  void (*scale)(A, C, T x, float factor);
  void (*lerp)(A, C, T x, T target, float part);
  void (*add_bias)(A, C, T x, T bias, T y);
  void (*bias_backward)(A, C, T grad_y, T grad_bias);
  void (*sum)(A, C, T x, T total);
  void (*square_sums)(A, C, T x, std::int64_t block, T out);
  void (*exact_sum)(A, C, T x, T state);
  void (*fill_normal)(A, C, const NormalArgs&);
  void (*norm_forward)(A, C, const NormArgs&);
  void (*norm_backward_input)(A, C, const NormBackwardArgs&);
  void (*norm_backward_weight)(A, C, const NormWeightArgs&);
  void (*gelu_forward)(A, C, T x, T y);
  void (*gelu_backward)(A, C, T x, T grad_y, T grad_x);
  void (*swiglu_forward)(A, C, T x, T y);
  void (*swiglu_backward)(A, C, T x, T grad_y, T grad_x);
  void (*embedding_forward)(A, C, const EmbeddingArgs&);
  void (*embedding_backward)(A, C, const EmbeddingBackwardArgs&);
  void (*position_forward)(A, C, const PositionArgs&);
  void (*position_backward)(A, C, const PositionBackwardArgs&);
  void (*cross_entropy_maximum)(A, C, const CrossEntropyShape&, T logits, T maximum);
  void (*cross_entropy_statistics)(A, C, const CrossEntropyShape&, T logits, T labels, T maximum,
                                   T statistics);
  void (*cross_entropy_losses)(A, C, const CrossEntropyShape&, T statistics, T losses);
  // Null: in the steps around it.
  void (*cross_entropy)(A, C, const CrossEntropyShape&, T logits, T labels, T losses,
                        std::optional<float> gradient_scale);
  void (*cross_entropy_gradient)(A, C, const CrossEntropyShape&, T logits, T labels, T maximum,
                                 T statistics, float scale);
  void (*attention_forward)(A, C, const AttentionArgs&);
  void (*append_to_cache)(A, C, const CacheArgs&);
  void (*attention_cached)(A, C, const CacheArgs&, T out);
  void (*attention_backward)(A, C, const AttentionBackwardArgs&);
  void (*rotary)(A, C, const RotaryArgs&);
  void (*dropout_add)(A, C, const DropoutAddArgs&);
  void (*adam)(A, C, const AdamArgs&);
  void (*sgd)(A, C, const SgdArgs&);
  void (*adafactor_squares)(A, C, const AdafactorSquares&);
  void (*adafactor_factors)(A, C, const AdafactorFactors&);
  void (*adafactor_size)(A, C, const AdafactorSize&);
  void (*adafactor_update)(A, C, const AdafactorUpdate&);
  // For collectives (kernels/peers.h). Equal addresses are left alone.
  void (*copy_peer)(A, void* to, const void* from, std::size_t bytes);
  void (*reduce_peers)(A, const ReducePeers&);
};

const Backend& cpu_backend();
const Backend& cuda_backend();  // throws Error in a build without CUDA
// Take the workspace of a device's kernels and compute nothing.
const Backend& planning_cpu_backend();
const Backend& planning_cuda_backend();
// Its entries add what a kernel costs to the context's trace (kernels/costs.cc).
const Backend& costs_backend();

inline const Backend& backend_of(Context& context) {
  const bool cuda = context.device().kernels() == DeviceKind::cuda;
  if (context.plans()) return cuda ? planning_cuda_backend() : planning_cpu_backend();
  return cuda ? cuda_backend() : cpu_backend();
}

template <class Function>
bool is_product(Function Backend::*member) {
  if constexpr (std::is_same_v<Function, decltype(Backend::gemm)>) {
    return member == &Backend::gemm;
  } else if constexpr (std::is_same_v<Function, decltype(Backend::attention_forward)>) {
    return member == &Backend::attention_forward;
  } else if constexpr (std::is_same_v<Function, decltype(Backend::attention_backward)>) {
    return member == &Backend::attention_backward;
  } else {
    return false;
  }
}

// Enqueues a backend's function on the context's stream, its arguments by value.
template <class Function, class... Args>
void launch(Context& context, Function Backend::*member, const Args&... args) {
  const Function function = backend_of(context).*member;
  OperationTrace* const trace = context.trace();
  const bool traced = trace != nullptr && trace->has_kernels();
  if (traced) (costs_backend().*member)(Access{}, context, args...);
  if (context.plans()) return function(Access{}, context, args...);
  OperationTrace::Marks* const marks = traced ? &trace->time_last() : nullptr;
  if (marks != nullptr) context.mark(marks->begin);
  context.stream().enqueue([function, member, &context, args...](const Access& access) {
    if (access.queue() != nullptr) return function(access, context, args...);
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    function(access, context, args...);
    KernelClock& clock = context.kernel_clock();
    const std::chrono::nanoseconds taken = Clock::now() - begin;
    (is_product(member) ? clock.products_ns : clock.others_ns)
        .fetch_add(taken.count(), std::memory_order_relaxed);
  });
  if (marks != nullptr) context.mark(marks->end);
}

}  // namespace trident

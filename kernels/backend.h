// The kernel interface of a device type (CPU or CUDA), and launch(), the single place that selects
// a backend.
//
// Each function of kernels/*.h checks its arguments on the host and calls launch(), which enqueues
// the backend's function on the context's stream. The call returns before an asynchronous stream
// has run the work; the next synchronize() rethrows a failure of that work. One thread drives a
// context at a time. No kernel is collective: only copy_peer and reduce_peers touch the memory of
// other ranks.
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
#include "kernels/experts.h"
#include "kernels/gemm.h"
#include "kernels/grouped_bias.h"
#include "kernels/grouped_gemm.h"
#include "kernels/heads.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/peers.h"
#include "kernels/rotary.h"
#include "kernels/routing.h"

namespace trident {

// The stream work of a backend, one entry for each function of kernels/*.h. The caller has already
// checked shapes and dtypes.
struct Backend {
  std::string (*instructions)();  // that its kernels use on this machine, for reports
#define TRIDENT_KERNEL(name, ...) void (*name)(__VA_ARGS__);
#define TRIDENT_OPTIONAL_KERNEL TRIDENT_KERNEL
#include "kernels/kernel_list.inc"
};

const Backend& cpu_backend();
const Backend& cuda_backend();  // throws Error in a build without CUDA
// Backends of a planning device: their entries allocate the workspace that the device's kernels
// would need and compute nothing.
const Backend& planning_cpu_backend();
const Backend& planning_cuda_backend();
// Its entries add the cost of a kernel to the context's trace (kernels/costs.cc).
const Backend& costs_backend();

inline const Backend& backend_of(Context& context) {
  const bool cuda = context.device().kernels() == DeviceKind::cuda;
  if (context.is_planning()) return cuda ? planning_cuda_backend() : planning_cpu_backend();
  return cuda ? cuda_backend() : cpu_backend();
}

// Whether the kernel clock counts this entry as a matrix product (attention included).
template <class Function>
bool is_product(Function Backend::*member) {
  if constexpr (std::is_same_v<Function, decltype(Backend::gemm)>) {
    return member == &Backend::gemm;
  } else if constexpr (std::is_same_v<Function, decltype(Backend::attention_forward)>) {
    return member == &Backend::attention_forward;
  } else if constexpr (std::is_same_v<Function, decltype(Backend::attention_backward)>) {
    return member == &Backend::attention_backward;
  } else if constexpr (std::is_same_v<Function, decltype(Backend::grouped_gemm)>) {
    return member == &Backend::grouped_gemm;
  } else if constexpr (std::is_same_v<Function, decltype(Backend::grouped_weight_gemm)>) {
    return member == &Backend::grouped_weight_gemm;
  } else {
    return false;
  }
}

// Enqueues a backend's function on the context's stream; the arguments are captured by value. A
// trace that records kernels also gets the kernel's cost and, on a device that computes, its time.
// CPU kernels add their wall time to the context's KernelClock. On a planning device the function
// runs at once.
template <class Function, class... Args>
void launch(Context& context, Function Backend::*member, const Args&... args) {
  const Function function = backend_of(context).*member;
  OperationTrace* const trace = context.trace();
  const bool traced = trace != nullptr && trace->has_kernels();
  if (traced) (costs_backend().*member)(Access{}, context, args...);
  if (context.is_planning()) return function(Access{}, context, args...);
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

// Whether an optional kernel can run in place of the calls that it replaces. A trace that records
// kernels sees these calls.
template <class Function>
bool takes_all(Context& context, Function Backend::*member) {
  const bool traced = context.trace() != nullptr && context.trace()->has_kernels();
  return !traced && backend_of(context).*member != nullptr;
}

}  // namespace trident

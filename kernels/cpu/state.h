// The state that the CPU kernels keep per rank: the selected inner loops, cached products and
// scratch memory. Only stream work of the rank's context uses it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/context.h"
#include "kernels/by_dtype.h"
#include "kernels/cpu/simd/bf16_loops.h"
#include "kernels/cpu/simd/table.h"
#include "kernels/rotary.h"

namespace trident::cpu {

class ProductCache;  // oneDNN's primitives; kernels/cpu/gemm_onednn.cc

struct State final : KernelState {
  State();
  ~State() override;

  const simd::Table* table;
  bool native_bf16_products;          // the processor has them; KernelOptions may forbid
  const simd::Bf16Loops* bf16_loops;  // loops by such products of our own, or null
  std::unique_ptr<ProductCache> products;

  // Returns at least `bytes` of memory, valid until the next call of scratch().
  std::byte* scratch(const Access& access, Context& context, std::int64_t bytes);

  // The table of rotary embedding, (2, S, D/2): cosines, then sines. The table of the last
  // arguments is kept.
  const float* rotary_table(const Access& access, Context& context, const RotaryArgs&);
  // Allocates the memory of that table. Returns true if the table must be filled.
  bool hold_rotary(Context& context, const RotaryArgs&);

 private:
  Tensor scratch_, rotary_;
  std::int64_t rotary_sequence_ = 0, rotary_head_dim_ = 0;
  RotaryFrequencies rotary_frequencies_;
};

inline State& state_of(Context& context) {
  return context.kernel_state<State>();
}
// The loops that multiply bf16 operands natively, null where the processor or the context's options
// don't allow it.
inline const simd::Bf16Loops* native_bf16_loops(Context& context) {
  return context.kernel_options().widen_bf16 ? nullptr : state_of(context).bf16_loops;
}

// The instruction set that a context begins with. ONEDNN_MAX_CPU_ISA limits both oneDNN and our own
// loops.
simd::Isa default_isa();

// Makes this context's kernels use the instruction set `isa` from now on and, below AVX-512, no
// bf16 product. For tests. Throws Error if the processor lacks the instruction set.
void use_isa(Context& context, simd::Isa isa);

// The 16-bit copy of an updated weight; empty if `tensor` is undefined.
simd::ModelWeight model_weight(const Access& access, const Tensor& tensor);

// The least number of elements that is worth a thread of its own.
inline constexpr std::int64_t grain_elements = 16384;
inline std::int64_t grain_rows(std::int64_t columns) {
  return std::max<std::int64_t>(1, grain_elements / std::max<std::int64_t>(1, columns));
}

// Adds sums to the n elements of `to`. sums(at, count, x) adds the sums of elements at … at + count
// to the floats x. If `to` is fp32, x is `to` itself. Otherwise x is a zeroed buffer, which is then
// added to `to` and rounded once.
template <class U, class Sums>
void add_in_f32(const simd::Table& table, U* to, std::int64_t n, Sums&& sums) {
  if constexpr (std::is_same_v<U, float>) {
    sums(std::int64_t{0}, n, to);
  } else {
    constexpr std::int64_t piece = 1024;
    for (std::int64_t at = 0; at < n; at += piece) {
      const std::int64_t count = std::min(piece, n - at);
      float totals[piece] = {};
      sums(at, count, totals);
      table.f32.add_to(totals, to + at, count);
    }
  }
}

// parallel_for over elements, in parts of full cache lines: f(begin, end).
template <class F>
void parallel_elements(Context& context, std::int64_t n, std::int64_t grain, F&& f) {
  constexpr std::int64_t line = 64;
  context.team().parallel_for(
      (n + line - 1) / line, (grain + line - 1) / line,
      [&](std::int64_t begin, std::int64_t end) { f(begin * line, std::min(n, end * line)); });
}

}  // namespace trident::cpu

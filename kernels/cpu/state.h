// What the CPU kernels keep per rank: the chosen inner loops, cached products, scratch memory.
// Touched only by stream work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/context.h"
#include "kernels/by_dtype.h"
#include "kernels/cpu/simd/table.h"

namespace trident::cpu {

class ProductCache;  // oneDNN's primitives; kernels/cpu/gemm_onednn.cc

struct State final : KernelState {
  State();
  ~State() override;

  const simd::Table* table;
  bool native_bf16_products;  // there are instructions for them; KernelOptions may say otherwise
  std::unique_ptr<ProductCache> products;

  // At least `bytes` of memory that the next call of scratch() may take away.
  std::byte* scratch(const Access& access, Context& context, std::int64_t bytes);

  // Cosines, then sines, of rotary embedding, (2, S, D/2), made for the last arguments seen.
  const float* rotary_table(const Access& access, Context& context, std::int64_t sequence,
                            std::int64_t head_dim, float base);
  // Memory for it; true where it has to be filled.
  bool hold_rotary(Context& context, std::int64_t sequence, std::int64_t head_dim, float base);

 private:
  Tensor scratch_, rotary_;
  std::int64_t rotary_sequence_ = 0, rotary_head_dim_ = 0;
  float rotary_base_ = 0;
};

inline State& state_of(Context& context) {
  return context.kernel_state<State>();
}

// What a context begins with: one limit, ONEDNN_MAX_CPU_ISA, holds for oneDNN and our own loops.
simd::Isa default_isa();

// From now on this context's kernels use the instruction set `isa` and, below AVX-512, no bf16
// product. For tests. Throws Error where the processor lacks it.
void use_isa(Context& context, simd::Isa isa);

// The 16-bit copy of an updated weight, if `tensor` is one.
simd::ModelWeight model_weight(const Access& access, const Tensor& tensor);

// The least work worth a thread of its own.
inline constexpr std::int64_t grain_elements = 16384;
inline std::int64_t grain_rows(std::int64_t columns) {
  return std::max<std::int64_t>(1, grain_elements / std::max<std::int64_t>(1, columns));
}

// Adds what sums(at, count, float*) adds to zeros to n elements of `to`: in place where they are
// fp32, else piece by piece, rounded once.
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

// parallel_for over elements, in parts of whole cache lines: f(begin, end).
template <class F>
void parallel_elements(Context& context, std::int64_t n, std::int64_t grain, F&& f) {
  constexpr std::int64_t line = 64;
  context.team().parallel_for(
      (n + line - 1) / line, (grain + line - 1) / line,
      [&](std::int64_t begin, std::int64_t end) { f(begin * line, std::min(n, end * line)); });
}

}  // namespace trident::cpu

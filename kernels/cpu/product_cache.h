// fp32 and bf16 matrix products through oneDNN, with a cache of its primitives. Only the CPU
// kernels use this header.
#pragma once

#include <cstdint>
#include <memory>

#include "core/context.h"
#include "kernels/cpu/simd/table.h"

namespace trident::cpu {

// The widest instructions that products may use: those of the processor, limited by the environment
// variable ONEDNN_MAX_CPU_ISA (oneDNN's own: SSE41, AVX2, AVX512_CORE, …).
struct ProductInstructions {
  simd::Isa isa = simd::Isa::sse2;
  bool bf16 = false;  // has instructions that multiply bf16
  bool amx = false;   // has the tile instructions (AMX) as well
};
ProductInstructions product_instructions();

// One product c := op(a) op(b) (+ bias) (+ c) over dense row-major operands; letters as in
// kernels/gemm.h. a_row, b_row and c_row are leading dimensions: the distance between rows as
// stored.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_row = 0, b_row = 0, c_row = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;
  DType input = DType::f32, output = DType::f32;
  bool operator==(const Product&) const = default;
};

struct ProductOperands {
  const void *a, *b;
  void* c;
  const void* bias;
};

// The primitives and the scratchpad of one context. Called inside stream work, or by a planning
// device. Throws Error if oneDNN fails in run().
class ProductCache {
 public:
  ProductCache();
  ~ProductCache();
  // Allocates the memory that run() of this product would work in.
  void reserve(Context& context, const Product&);
  void run(const Access& access, Context& context, const Product&, const ProductOperands&);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trident::cpu

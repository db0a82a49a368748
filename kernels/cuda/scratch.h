// How much scratch memory kernels take, for the kernels and for the plan, which runs none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/optimizer.h"

namespace trident::cuda {

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Of cuBLASLt, once per rank; NVIDIA's advice for Hopper.
inline constexpr std::size_t products_workspace = std::size_t{32} << 20;  // bytes

// Sums over a matrix's rows: one for each chunk of rows. In fp32 elements.
inline constexpr std::int64_t chunk_rows = 128;
inline std::int64_t column_partials(std::int64_t rows, std::int64_t columns, int sums) {
  return ceil_div(rows, chunk_rows) * sums * columns;
}

// Sums in a fixed order: one for each chunk of terms. In fp64 elements.
inline constexpr std::int64_t ordered_chunk = 4096;
inline std::int64_t ordered_partials(std::int64_t n) {
  return ceil_div(n, ordered_chunk);
}

// The gradient of attention: a sum of each query. In fp32 elements.
inline std::int64_t attention_deltas(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.sequence;
}

// The embedding's gradient: a sort's workspace, then three int32 a token. In bytes.
inline std::int64_t sort_scratch(std::int64_t tokens, std::size_t workspace) {
  return static_cast<std::int64_t>((workspace + 15) / 16 * 16) + 3 * tokens * 4;
}

// Adafactor's sums over rows and columns of a part: by warp, and by tile of rows.
struct AdafactorTiles {
  static constexpr int threads = 128;
  static constexpr std::int64_t tile_rows = 64;
  AdafactorTiles(const AdafactorPart& part, int pack)  // elements that a thread reads at once
      : first_row(part.begin / part.columns),
        rows((part.begin + part.weight.numel() - 1) / part.columns - first_row + 1),
        across(ceil_div(part.columns, threads * pack)),
        down(ceil_div(rows, tile_rows)),
        warps(across * (threads / 32)),
        partials(rows * warps + down * part.columns) {}
  std::int64_t first_row, rows, across, down, warps;
  std::int64_t partials;  // in fp64 elements
};

}  // namespace trident::cuda

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

// Sums over a matrix's rows: one for each chunk of rows. In fp32 elements. The blocks, each of a
// chunk and 256 columns, come to some 4 for each of a large GPU's 132 multiprocessors.
inline std::int64_t chunk_rows(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t blocks = 4 * 132, step = 32;  // rows that a block reads at once
  const std::int64_t chunks = ceil_div(blocks, ceil_div(columns, 256));
  return ceil_div(ceil_div(rows, chunks), step) * step;
}
inline std::int64_t column_partials(std::int64_t rows, std::int64_t columns, int sums) {
  if (rows == 0 || columns == 0) return 0;
  return ceil_div(rows, chunk_rows(rows, columns)) * sums * columns;
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

// What cuDNN may take for attention, in bytes; beyond, our kernels do it.
inline constexpr std::int64_t fused_attention_most = std::int64_t{4} << 30;
// What its gradient takes beside those sums: the queries' gradients in fp32, deterministic once for
// every 128 keys (measured on an H200 with cuDNN 9.14; GPUs before Hopper take less).
inline std::int64_t fused_attention_partials(const AttentionShape& shape, bool deterministic) {
  const std::int64_t parts = deterministic ? ceil_div(shape.sequence, 128) : 1;
  return attention_deltas(shape) * shape.head_dim * parts;
}

// The embedding's gradient, in bytes: sums of chunks of equal ids' rows, in fp32 (embedding.cu);
// four int32 a token; a sort's workspace.
inline constexpr std::int64_t equal_ids = 64;  // rows of a chunk
struct EmbeddingScratch {
  EmbeddingScratch(std::int64_t tokens, std::int64_t columns, std::size_t workspace)
      : sums(whole(ceil_div(tokens, equal_ids) * columns * 4)),
        numbers(whole(tokens * 4)),
        bytes(sums + 4 * numbers + static_cast<std::int64_t>(workspace)) {}
  static std::int64_t whole(std::int64_t bytes) { return ceil_div(bytes, 256) * 256; }
  std::int64_t sums;     // of all chunks
  std::int64_t numbers;  // of one int32 a token
  std::int64_t bytes;
};

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

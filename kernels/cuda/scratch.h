// Sizes of the scratch memory of CUDA kernels. The kernels and the plan
// (kernels/cuda/planning_backend.cc), which runs no kernel, use the same formulas.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/optimizer.h"

namespace trident::cuda {

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// cuBLASLt's workspace, one per rank; the size is NVIDIA's advice for Hopper.
inline constexpr std::size_t products_workspace = std::size_t{32} << 20;  // bytes

// Partial sums over the rows of a matrix, one for each chunk of rows, in fp32 elements. A block
// sums 256 columns of one chunk; the chunk size gives about 4 blocks for each of the 132
// multiprocessors of a large GPU.
inline std::int64_t chunk_rows(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t blocks = 4 * 132, step = 32;  // step: rows that a block reads at once
  const std::int64_t chunks = ceil_div(blocks, ceil_div(columns, 256));
  return ceil_div(ceil_div(rows, chunks), step) * step;
}
inline std::int64_t column_partials(std::int64_t rows, std::int64_t columns, int sums) {
  if (rows == 0 || columns == 0) return 0;
  return ceil_div(rows, chunk_rows(rows, columns)) * sums * columns;
}

// Sums in a fixed order: one partial sum for each chunk of terms, in fp64 elements.
inline constexpr std::int64_t ordered_chunk = 4096;
inline std::int64_t ordered_partials(std::int64_t n) {
  return ceil_div(n, ordered_chunk);
}

// The largest logit and the sum of each token, in fp64 elements.
inline std::int64_t routing_totals(std::int64_t tokens) {
  return 2 * tokens;
}
// The most tiles of 64 rows of one group each that `rows` rows of `groups` groups have.
inline std::int64_t grouped_tiles(std::int64_t rows, std::int64_t groups) {
  return rows / 64 + groups;
}

// The gradient of attention needs one sum per query, in fp32 elements.
inline std::int64_t attention_deltas(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.sequence;
}

// The largest workspace that cuDNN may take for attention, in bytes. Our kernels handle larger
// cases.
inline constexpr std::int64_t fused_attention_most = std::int64_t{4} << 30;
// Whether cuDNN may have a kernel, by what is computed; sizes and addresses decide too. Dropout
// needs our own numbers; offsets, windows, documents and sinks run on our kernels.
inline bool fused_attention_covers(const AttentionArgs& args) {
  return args.out.dtype() != DType::f32 && args.dropout.probability == 0 && !args.sinks &&
         args.mask.offset() == 0 && args.mask.window == 0 && !args.mask.document_begins &&
         args.shape.keys() == args.shape.sequence;
}
// Additional workspace of cuDNN's attention gradient, in fp32 elements: the queries' gradients in
// fp32. The deterministic algorithm keeps one copy for every 128 keys (measured on an H200 with
// cuDNN 9.14; GPUs before Hopper take less).
inline std::int64_t fused_attention_partials(const AttentionShape& shape, bool deterministic) {
  const std::int64_t parts = deterministic ? ceil_div(shape.sequence, 128) : 1;
  return attention_deltas(shape) * shape.head_dim * parts;
}

// Scratch memory of the embedding's gradient (embedding.cu), in bytes: fp32 sums of chunks of rows
// with equal ids, four int32 arrays with one entry per token, and the workspace of the sort.
inline constexpr std::int64_t equal_ids = 64;  // rows in a chunk
struct EmbeddingScratch {
  EmbeddingScratch(std::int64_t tokens, std::int64_t columns, std::size_t workspace)
      : sums(whole(ceil_div(tokens, equal_ids) * columns * 4)),
        numbers(whole(tokens * 4)),
        bytes(sums + 4 * numbers + static_cast<std::int64_t>(workspace)) {}
  static std::int64_t whole(std::int64_t bytes) { return ceil_div(bytes, 256) * 256; }
  std::int64_t sums;     // bytes of the sums of all chunks
  std::int64_t numbers;  // bytes of one int32 array
  std::int64_t bytes;    // total
};

// Partial sums of Adafactor over the rows and columns of a part. Each warp has one for a row, each
// tile of rows one for a column.
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

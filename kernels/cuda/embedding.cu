#include "kernels/embedding.h"

#include <bit>

#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/sort.h"
#include "kernels/cuda/state.h"

namespace trident::cuda {
namespace {

template <class T>
struct Lookup {
  const std::int32_t* ids;
  const T* table;
  T* out;
  std::int64_t count, columns, begin, rows;  // count: of ids
};
// A warp copies a row of the table, or zeros.
template <int N, class T>
__global__ void __launch_bounds__(128) lookup_kernel(Lookup<T> a) {
  constexpr int at_once = 4;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * 4 + threadIdx.x / 32;
  if (at >= a.count) return;
  const std::int64_t row = a.ids[at] - a.begin;
  const bool here = row >= 0 && row < a.rows;
  const T* const from = a.table + row * a.columns;
  T* const to = a.out + at * a.columns;
  for (std::int64_t i = threadIdx.x % 32 * N; i < a.columns; i += at_once * 32 * N) {
    Packed<N, T> x[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      x[k] = Packed<N, T>{};
      if (here && i + k * 32 * N < a.columns) x[k] = fetch<N>(from + i + k * 32 * N);
    }
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      if (i + k * 32 * N < a.columns) put(to + i + k * 32 * N, x[k]);
    }
  }
}

// Replaces ids by rows of the table, which need few bits to sort by. Ids of other slices and the
// padding id get the row `end`.
struct Number {
  const std::int32_t* ids;
  std::int32_t *rows, *ascending;
  std::int64_t begin, end, padding;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t row = ids[i] - begin;
    const bool counts = row >= 0 && row < end && ids[i] != padding;
    rows[i] = static_cast<std::int32_t>(counts ? row : end);
    ascending[i] = static_cast<std::int32_t>(i);
  }
};

// Tokens sorted by their rows of the table. A row that many tokens share is split into chunks of
// `equal_ids` tokens, so that common words do not keep one block busy. The ids alone determine the
// chunks.
struct SortedTokens {
  std::int64_t count, end;  // end: the row number of tokens without a row
  const std::int32_t *rows, *tokens;

  __device__ std::int64_t first_of(std::int32_t row, std::int64_t before) const {
    std::int64_t low = 0;
    while (low < before) {
      const std::int64_t middle = (low + before) / 2;
      if (rows[middle] < row) {
        low = middle + 1;
      } else {
        before = middle;
      }
    }
    return low;
  }
  // The later (not first) chunk of a row that begins in [64 · slot, 64 · slot + 64). There is at
  // most one, and no two chunks of a row or of neighbouring rows share a slot.
  struct Chunk {
    std::int64_t first;  // index of the first token
    int number;          // index in its row; 0: no later chunk begins here
  };
  __device__ Chunk later(std::int64_t slot) const {
    const std::int64_t from = slot * equal_ids;
    if (from == 0) return {};
    const std::int32_t row = rows[from - 1];
    const std::int64_t start = first_of(row, from - 1);
    const std::int64_t number = (from - start + equal_ids - 1) / equal_ids;
    const std::int64_t first = start + number * equal_ids;
    if (row == end || first >= count || rows[first] != row) return {};
    return {first, static_cast<int>(number)};
  }
};

// total += the rows of the chunk that begins at token `first`, in order.
template <int N, class T>
__device__ inline void add_chunk(const SortedTokens& sorted, std::int64_t first, const T* grad,
                                 std::int64_t columns, float (&total)[N]) {
  constexpr int some = 8;
  const std::int32_t row = sorted.rows[first];
  for (std::int64_t i = first; i < first + equal_ids; i += some) {
    bool here[some];
    Packed<N, T> x[some];
#pragma unroll
    for (int k = 0; k < some; ++k) {
      here[k] = i + k < sorted.count && sorted.rows[i + k] == row;
    }
#pragma unroll
    for (int k = 0; k < some; ++k) {
      x[k] = Packed<N, T>{};
      if (here[k]) x[k] = fetch<N>(grad + sorted.tokens[i + k] * columns);
    }
#pragma unroll
    for (int k = 0; k < some; ++k) {
      float v[N];
      unpack(x[k], v);
#pragma unroll
      for (int j = 0; j < N; ++j) total[j] = here[k] ? total[j] + v[j] : total[j];
    }
    if (!here[some - 1]) return;
  }
}

// Adds the first chunk of each row to the table, and sums the later chunks into `sums` (slots,
// columns). The first blocks handle the later chunks, because these are long. (The second number of
// __launch_bounds__ lets the compiler use the registers that eight rows at once need.)
template <int N, class T, class U>
__global__ void __launch_bounds__(128, 8)
    add_rows_by_id(SortedTokens sorted, std::int64_t slots, std::int64_t columns, const T* grad,
                   U* table, float* sums) {
  std::int64_t first = static_cast<std::int64_t>(blockIdx.x) - slots;
  const std::int64_t slot = blockIdx.x;
  const bool later = first < 0;
  if (later) {
    const SortedTokens::Chunk chunk = sorted.later(slot);
    if (chunk.number == 0) return;
    first = chunk.first;
  } else if (sorted.rows[first] == sorted.end ||
             (first > 0 && sorted.rows[first - 1] == sorted.rows[first])) {
    return;
  }
  U* const to = table + sorted.rows[first] * columns;
  for (std::int64_t column = static_cast<std::int64_t>(threadIdx.x) * N; column < columns;
       column += 128 * N) {
    float total[N] = {};
    if (!later) load(to + column, total);
    add_chunk(sorted, first, grad + column, columns, total);
    if (later) {
      store(sums + slot * columns + column, total);
    } else {
      store(to + column, total);
    }
  }
}

// The block of a row's second chunk adds the sums of all later chunks to the table.
template <int N, class U>
__global__ void __launch_bounds__(128)
    add_later_chunks(SortedTokens sorted, std::int64_t columns, const float* sums, U* table) {
  const SortedTokens::Chunk chunk = sorted.later(blockIdx.x);
  if (chunk.number != 1) return;
  const std::int32_t row = sorted.rows[chunk.first];
  for (std::int64_t column = static_cast<std::int64_t>(threadIdx.x) * N; column < columns;
       column += 128 * N) {
    float total[N];
    load(table + row * columns + column, total);
    const float* from = sums + blockIdx.x * columns + column;
    for (std::int64_t first = chunk.first; first < sorted.count && sorted.rows[first] == row;
         first += equal_ids) {
      float x[N];
      load(from, x);
#pragma unroll
      for (int j = 0; j < N; ++j) total[j] += x[j];
      from += columns;
    }
    store(table + row * columns + column, total);
  }
}

template <class T>
struct AddPosition {
  const T* table;
  T* x;
  std::int64_t columns, sequence, first_row, begin;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t position = begin + (first_row + i / columns) % sequence;
    float a[N], p[N];
    load(x + i, a);
    load(table + position * columns + i % columns, p);
#pragma unroll
    for (int j = 0; j < N; ++j) a[j] += p[j];
    store(x + i, a);
  }
};

template <int N, class T>
__device__ inline void add_packed(const Packed<N, T>& x, float (&total)[N]) {
  float v[N];
  unpack(x, v);
#pragma unroll
  for (int j = 0; j < N; ++j) total[j] += v[j];
}

// Blocks are arranged by columns and positions. first_position is the position of the gradient's
// first row.
template <int N, class T, class U>
__global__ void __launch_bounds__(256, 4)
    position_gradient_kernel(std::int64_t columns, std::int64_t sequence,
                             std::int64_t first_position, std::int64_t rows, const T* grad,
                             U* table) {
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (column >= columns) return;
  for (std::int64_t position = blockIdx.y; position < sequence; position += gridDim.y) {
    std::int64_t row = position - first_position + (position < first_position ? sequence : 0);
    if (row >= rows) continue;
    float total[N];
    load(table + position * columns + column, total);
    for (; row + 7 * sequence < rows; row += 8 * sequence) {
      Packed<N, T> x[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        x[k] = fetch<N>(grad + (row + k * sequence) * columns + column);
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) add_packed(x[k], total);
    }
#pragma unroll 1
    for (; row < rows; row += sequence) {
      add_packed(fetch<N>(grad + row * columns + column), total);
    }
    store(table + position * columns + column, total);
  }
}

}  // namespace

void embedding_forward(const Access& access, Context&, const EmbeddingArgs& args) {
  by_dtype(args.table.dtype(), [&]<class T>(T*) {
    const Lookup<T> f{.ids = data<std::int32_t>(access, args.ids),
                      .table = data<T>(access, args.table),
                      .out = data<T>(access, args.out),
                      .count = args.ids.numel(),
                      .columns = args.table.dim(1),
                      .begin = args.begin,
                      .rows = args.table.dim(0)};
    const bool wide = aligned(f.table, f.out) && f.columns % pack_size<T> == 0;
    start(queue_of(access), blocks_of(ceil_div(f.count, 4)), 128,
          wide ? lookup_kernel<pack_size<T>, T> : lookup_kernel<1, T>, f);
  });
}

void embedding_backward(const Access& access, Context& context, const EmbeddingBackwardArgs& args) {
  const Queue& queue = queue_of(access);
  const std::int64_t tokens = args.ids.numel(), columns = args.grad_table.dim(1);
  if (tokens == 0) return;
  const std::int64_t rows = args.grad_table.dim(0);
  SortRows sort{.n = tokens,
                .bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows)))};
  const std::size_t work = sort_workspace(sort);
  const EmbeddingScratch sizes(tokens, columns, work);
  std::byte* const scratch = state_of(context).scratch(access, context, sizes.bytes);
  auto* const sums = reinterpret_cast<float*>(scratch);
  const auto numbers = [&](int i) {
    return reinterpret_cast<std::int32_t*>(scratch + sizes.sums + i * sizes.numbers);
  };
  const Number number{.ids = data<std::int32_t>(access, args.ids),
                      .rows = numbers(0),
                      .ascending = numbers(1),
                      .begin = args.begin,
                      .end = rows,
                      .padding = args.padding};
  sort.ids = number.rows;
  sort.ascending = number.ascending;
  sort.ids_out = numbers(2);
  sort.rows_out = numbers(3);
  elementwise<1>(queue, tokens, true, number);
  sort_rows(queue, sort, scratch + sizes.sums + 4 * sizes.numbers, work);
  const SortedTokens sorted{
      .count = tokens, .end = rows, .rows = sort.ids_out, .tokens = sort.rows_out};
  const std::int64_t slots = ceil_div(tokens, equal_ids);
  by_dtype(args.grad_out.dtype(), [&]<class T>(T*) {
    by_dtype(args.grad_table.dtype(), [&]<class U>(U*) {
      constexpr int N = pack_size_of<T, U>;
      const T* const grad = data<T>(access, args.grad_out);
      U* const table = data<U>(access, args.grad_table);
      const bool wide = aligned(grad, table) && columns % N == 0;
      start(queue, blocks_of(slots + tokens), 128,
            wide ? add_rows_by_id<N, T, U> : add_rows_by_id<1, T, U>, sorted, slots, columns, grad,
            table, sums);
      if (slots == 1) return;  // no row has two chunks
      start(queue, blocks_of(slots), 128, wide ? add_later_chunks<N, U> : add_later_chunks<1, U>,
            sorted, columns, static_cast<const float*>(sums), table);
    });
  });
}

void position_forward(const Access& access, Context&, const PositionArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const AddPosition<T> f{.table = data<T>(access, args.table),
                           .x = data<T>(access, args.x),
                           .columns = args.x.dim(1),
                           .sequence = args.sequence,
                           .first_row = args.first_row,
                           .begin = args.begin};
    elementwise<pack_size<T>>(queue_of(access), args.x.numel(),
                              aligned(f.table, f.x) && f.columns % pack_size<T> == 0, f);
  });
}

void position_backward(const Access& access, Context&, const PositionBackwardArgs& args) {
  by_dtype(args.grad_x.dtype(), [&]<class T>(T*) {
    by_dtype(args.grad_table.dtype(), [&]<class U>(U*) {
      constexpr int N = pack_size_of<T, U>;
      const T* const grad = data<T>(access, args.grad_x);
      U* const table = data<U>(access, args.grad_table);
      const std::int64_t columns = args.grad_x.dim(1);
      const bool wide = aligned(grad, table) && columns % N == 0;
      const std::int64_t packs = ceil_div(columns, wide ? N : 1);
      const std::int64_t across = ceil_div(packs, 256);
      // The number of full warps that holds a block's share of the columns.
      const int threads = static_cast<int>(ceil_div(ceil_div(packs, across), 32) * 32);
      start(queue_of(access), blocks_of(across, std::min<std::int64_t>(args.sequence, 65535)),
            threads, wide ? position_gradient_kernel<N, T, U> : position_gradient_kernel<1, T, U>,
            columns, args.sequence, args.first_row % args.sequence, args.grad_x.dim(0), grad,
            table);
    });
  });
}

}  // namespace trident::cuda

#include "kernels/embedding.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/sort.h"
#include "kernels/cuda/state.h"

namespace trident::cuda {
namespace {

// Elements count those of out.
template <class T>
struct Lookup {
  const std::int32_t* ids;
  const T* table;
  T* out;
  std::int64_t columns, begin, rows;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t row = ids[i / columns] - begin;
    float x[N] = {};
    if (row >= 0 && row < rows) load(table + row * columns + i % columns, x);
    store(out + i, x);
  }
};

struct Ascending {
  std::int32_t* to;
  template <int N>
  __device__ void run(std::int64_t i) const {
    to[i] = static_cast<std::int32_t>(i);
  }
};

// Of the tokens in the order of their ids: the block at the first of equal ids adds up all of them.
template <int N, class T, class U>
__global__ void __launch_bounds__(128)
    add_rows_by_id(std::int64_t tokens, std::int64_t columns, std::int64_t begin, std::int64_t rows,
                   const std::int32_t* ids, const std::int32_t* tokens_by_id, const T* grad,
                   U* table) {
  const std::int64_t first = blockIdx.x;
  const std::int32_t id = ids[first];
  const std::int64_t row = id - begin;
  if (row < 0 || row >= rows || (first > 0 && ids[first - 1] == id)) return;
  for (std::int64_t column = static_cast<std::int64_t>(threadIdx.x) * N; column < columns;
       column += 128 * N) {
    float total[N];
    load(table + row * columns + column, total);
    for (std::int64_t i = first; i < tokens && ids[i] == id; ++i) {
      float x[N];
      load(grad + tokens_by_id[i] * columns + column, x);
#pragma unroll
      for (int j = 0; j < N; ++j) total[j] += x[j];
    }
    store(table + row * columns + column, total);
  }
}

template <class T>
struct AddPosition {
  const T* table;
  T* x;
  std::int64_t columns, sequence, first_row;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t position = (first_row + i / columns) % sequence;
    float a[N], p[N];
    load(x + i, a);
    load(table + position * columns + i % columns, p);
#pragma unroll
    for (int j = 0; j < N; ++j) a[j] += p[j];
    store(x + i, a);
  }
};

// Blocks by columns and positions. first_position: of the gradient's first row.
template <int N, class T, class U>
__global__ void __launch_bounds__(256)
    position_gradient_kernel(std::int64_t columns, std::int64_t sequence,
                             std::int64_t first_position, std::int64_t rows, const T* grad,
                             U* table) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x) * N;
  if (column >= columns) return;
  for (std::int64_t position = blockIdx.y; position < sequence; position += gridDim.y) {
    std::int64_t row = position - first_position + (position < first_position ? sequence : 0);
    if (row >= rows) continue;
    float total[N];
    load(table + position * columns + column, total);
    for (; row < rows; row += sequence) {
      float x[N];
      load(grad + row * columns + column, x);
#pragma unroll
      for (int j = 0; j < N; ++j) total[j] += x[j];
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
                      .columns = args.table.dim(1),
                      .begin = args.begin,
                      .rows = args.table.dim(0)};
    elementwise<pack_size<T>>(queue_of(access), args.out.numel(),
                              aligned(f.table, f.out) && f.columns % pack_size<T> == 0, f);
  });
}

void embedding_backward(const Access& access, Context& context, const EmbeddingBackwardArgs& args) {
  const Queue& queue = queue_of(access);
  const std::int64_t tokens = args.ids.numel(), columns = args.grad_table.dim(1);
  if (tokens == 0) return;
  SortRows sort{.ids = data<std::int32_t>(access, args.ids), .n = tokens};
  const std::size_t work = sort_workspace(sort);
  const std::int64_t bytes = sort_scratch(tokens, work);
  std::byte* const scratch = state_of(context).scratch(access, context, bytes);
  auto* const numbers = reinterpret_cast<std::int32_t*>(scratch + bytes - 3 * tokens * 4);
  sort.ascending = numbers;
  sort.ids_out = numbers + tokens;
  sort.rows_out = numbers + 2 * tokens;
  elementwise<1>(queue, tokens, true, Ascending{numbers});
  sort_rows(queue, sort, scratch, work);
  by_dtype(args.grad_out.dtype(), [&]<class T>(T*) {
    by_dtype(args.grad_table.dtype(), [&]<class U>(U*) {
      constexpr int N = pack_size_of<T, U>;
      const T* const grad = data<T>(access, args.grad_out);
      U* const table = data<U>(access, args.grad_table);
      start(queue, blocks_of(tokens), 128,
            aligned(grad, table) && columns % N == 0 ? add_rows_by_id<N, T, U>
                                                     : add_rows_by_id<1, T, U>,
            tokens, columns, args.begin, args.grad_table.dim(0), sort.ids_out, sort.rows_out, grad,
            table);
    });
  });
}

void position_forward(const Access& access, Context&, const PositionArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const AddPosition<T> f{.table = data<T>(access, args.table),
                           .x = data<T>(access, args.x),
                           .columns = args.x.dim(1),
                           .sequence = args.sequence,
                           .first_row = args.first_row};
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
      start(queue_of(access),
            blocks_of(ceil_div(columns, wide ? 256 * N : 256),
                      std::min<std::int64_t>(args.sequence, 65535)),
            256, wide ? position_gradient_kernel<N, T, U> : position_gradient_kernel<1, T, U>,
            columns, args.sequence, args.first_row % args.sequence, args.grad_x.dim(0), grad,
            table);
    });
  });
}

}  // namespace trident::cuda

#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {
namespace {

// table[row_of(t)] += grad[t] for ascending t. The threads split the columns. A negative row is
// skipped.
template <class RowOf>
void scatter_add(const Access& access, Context& context, const Tensor& grad, const Tensor& table,
                 RowOf row_of) {
  const std::int64_t rows = grad.dim(0), columns = grad.dim(1);
  by_dtype(grad.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, grad);
    const auto& leaves = state_of(context).table->get<T>();
    by_dtype(table.dtype(), [&]<class U>(U*) {
      U* const to = data<U>(access, table);
      parallel_elements(
          context, columns, grain_rows(rows), [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t t = 0; t < rows; ++t) {
              const std::int64_t row = row_of(t);
              if (row < 0) continue;
              leaves.add_to(from + t * columns + begin, to + row * columns + begin, end - begin);
            }
          });
    });
  });
}

}  // namespace

void embedding_forward(const Access& access, Context& context, const EmbeddingArgs& args) {
  const std::int32_t* const ids = data<std::int32_t>(access, args.ids);
  const std::int64_t rows = args.table.dim(0), columns = args.table.dim(1);
  by_dtype(args.table.dtype(), [&]<class T>(T*) {
    const T* const table = data<T>(access, args.table);
    T* const out = data<T>(access, args.out);
    context.team().parallel_for(
        args.ids.numel(), grain_rows(columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t row = ids[t] - args.begin;
            if (row >= 0 && row < rows) {
              std::copy_n(table + row * columns, columns, out + t * columns);
            } else {
              std::fill_n(out + t * columns, columns, T(0.0f));
            }
          }
        });
  });
}

void embedding_backward(const Access& access, Context& context, const EmbeddingBackwardArgs& args) {
  const std::int32_t* const ids = data<std::int32_t>(access, args.ids);
  const std::int64_t rows = args.grad_table.dim(0);
  scatter_add(access, context, args.grad_out, args.grad_table, [&](std::int64_t t) {
    const std::int64_t row = ids[t] - args.begin;
    return row < rows && ids[t] != args.padding ? row : -1;
  });
}

void position_forward(const Access& access, Context& context, const PositionArgs& args) {
  const std::int64_t columns = args.x.dim(1);
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const T* const table = data<T>(access, args.table);
    T* const x = data<T>(access, args.x);
    const auto& leaves = state_of(context).table->get<T>();
    context.team().parallel_for(
        args.x.dim(0), grain_rows(columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t position = args.begin + (args.first_row + t) % args.sequence;
            T* const row = x + t * columns;
            leaves.add_bias(row, table + position * columns, row, columns);
          }
        });
  });
}

void position_backward(const Access& access, Context& context, const PositionBackwardArgs& args) {
  scatter_add(access, context, args.grad_x, args.grad_table,
              [&](std::int64_t t) { return (args.first_row + t) % args.sequence; });
}

}  // namespace trident::cpu

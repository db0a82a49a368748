#include "kernels/grouped_gemm.h"

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/bf16_loops.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {
namespace {

// Block sizes. A block of the second operand stays in the second-level cache while it serves the
// rows of a block of the first.
constexpr std::int64_t row_block = 96;
constexpr std::int64_t dot_columns = 96, dot_terms = 512;
// Of copied rows: rows whose distance is a large power of two share few lines of a cache.
constexpr std::int64_t dot_row = dot_terms + 16;
constexpr std::int64_t panel_columns = 128, panel_terms = 256;
constexpr std::int64_t weight_rows = 96;  // rows of a weight's gradient

constexpr std::int64_t most(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}
// fp32 numbers that one thread works in: blocks of both operands and of the result.
constexpr std::int64_t dot_scratch =
    row_block * dot_row + dot_columns * dot_row + row_block * dot_columns;
constexpr std::int64_t panel_scratch =
    row_block * panel_terms + panel_terms * panel_columns + row_block * panel_columns;
constexpr std::int64_t weight_scratch =
    panel_terms * (weight_rows + panel_columns) + 2 * weight_rows * panel_columns;
constexpr std::int64_t scratch_floats = most(dot_scratch, most(panel_scratch, weight_scratch));

// The rows of one source for one expert.
struct Run {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// The rows of every expert, source by source.
class Runs {
 public:
  Runs(const std::int64_t* ends, std::int64_t groups, std::int64_t experts)
      : ends_(ends), sources_(groups / experts), experts_(experts) {}
  std::int64_t sources() const { return sources_; }
  std::int64_t experts() const { return experts_; }
  Run of(std::int64_t source, std::int64_t expert) const {
    const std::int64_t group = source * experts_ + expert;
    return {group == 0 ? 0 : ends_[group - 1], ends_[group]};
  }
  std::int64_t rows(std::int64_t expert) const {
    std::int64_t rows = 0;
    for (std::int64_t s = 0; s < sources_; ++s) rows += of(s, expert).size();
    return rows;
  }

 private:
  const std::int64_t* ends_;
  std::int64_t sources_, experts_;
};

// Columns of the result of one expert, and their cost.
struct Task {
  std::int64_t expert = 0, begin = 0, end = 0, cost = 0;
};

// Divides n columns of each expert into tasks of at most `block` columns. A task costs what its
// columns do: `fixed` for its matrix and one for each row.
std::vector<Task> tasks_of(const Runs& runs, std::int64_t n, std::int64_t block,
                           std::int64_t fixed) {
  std::vector<Task> tasks;
  for (std::int64_t e = 0; e < runs.experts(); ++e) {
    const std::int64_t rows = runs.rows(e);
    if (rows == 0) continue;
    for (std::int64_t j = 0; j < n; j += block) {
      const std::int64_t end = std::min(n, j + block);
      tasks.push_back({e, j, end, (end - j) * (rows + fixed)});
    }
  }
  return tasks;
}

// Runs task(task, scratch) for all, consecutive tasks of about equal cost on each thread.
// `element_cost`: multiplications of a unit of cost.
template <class F>
void run(const Access& access, Context& context, const std::vector<Task>& tasks,
         std::int64_t element_cost, const F& f) {
  std::int64_t total = 0;
  for (const Task& task : tasks) total += task.cost;
  constexpr std::int64_t worth_a_thread = 1 << 18;  // multiplications
  const std::int64_t threads =
      std::clamp<std::int64_t>(total * element_cost / worth_a_thread, 1, context.team().size());
  auto* const scratch = reinterpret_cast<float*>(state_of(context).scratch(
      access, context,
      context.team().size() * scratch_floats * static_cast<std::int64_t>(sizeof(float))));
  const auto of_thread = [&](int thread) {
    std::int64_t before = 0;
    for (const Task& task : tasks) {
      // A task belongs to the thread in whose share its middle lies.
      const std::int64_t middle = before + task.cost / 2;
      before += task.cost;
      if (middle * threads / total == thread) f(task, scratch + thread * scratch_floats);
    }
  };
  if (total == 0) return;
  if (threads == 1) return of_thread(0);
  context.team().run(static_cast<int>(threads), of_thread);
}

// Blocks of at most row_block rows of an expert, whatever their sources: f(the rows' numbers).
template <class F>
void each_row_block(const Runs& runs, std::int64_t expert, const F& f) {
  std::vector<std::int64_t> rows;
  for (std::int64_t s = 0; s < runs.sources(); ++s) {
    const Run own = runs.of(s, expert);
    for (std::int64_t r = own.begin; r < own.end; ++r) {
      rows.push_back(r);
      if (static_cast<std::int64_t>(rows.size()) < row_block) continue;
      f(std::as_const(rows));
      rows.clear();
    }
  }
  if (!rows.empty()) f(std::as_const(rows));
}

std::int64_t rounded_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

template <class T>
struct Operands {
  const T *a, *b;
  T* c;
  std::int64_t k, n;
};

// fp32 rows [k0, k0 + terms) of a.
template <class T>
void widen_rows(const simd::Table& table, const Operands<T>& x,
                const std::vector<std::int64_t>& rows, std::int64_t k0, std::int64_t terms,
                float* to, std::int64_t to_row) {
  for (const std::int64_t row : rows) {
    table.get<T>().to_f32(x.a + row * x.k + k0, to, terms);
    to += to_row;
  }
}

template <class T>
void write_rows(const simd::Table& table, const Operands<T>& x,
                const std::vector<std::int64_t>& rows, const Task& task, const float* from,
                std::int64_t from_row) {
  for (const std::int64_t row : rows) {
    table.get<T>().from_f32(from, x.c + row * x.n + task.begin, task.end - task.begin);
    from += from_row;
  }
}

// Both operands of c = a bᵀ have their terms side by side, so products need no packing. They are
// copied where they aren't fp32, and where their rows would evict each other from a cache.
template <class T>
void multiply_transposed(const simd::Table& table, const Runs& runs, const Operands<T>& x,
                         const Task& task, float* scratch) {
  float* const left = scratch;
  float* const right = left + row_block * dot_row;
  float* const result = right + dot_columns * dot_row;
  const std::int64_t columns = task.end - task.begin;
  const T* const matrix = x.b + (task.expert * x.n + task.begin) * x.k;
  const bool in_place = std::is_same_v<T, float> && x.k % 256 != 0;
  each_row_block(runs, task.expert, [&](const std::vector<std::int64_t>& rows) {
    const auto count = static_cast<std::int64_t>(rows.size());
    const bool consecutive = rows.back() - rows.front() + 1 == count;
    for (std::int64_t k0 = 0; k0 < x.k; k0 += dot_terms) {
      const std::int64_t terms = std::min(dot_terms, x.k - k0);
      const float *a = left, *b = right;
      std::int64_t a_row = dot_row, b_row = dot_row;
      if (in_place) {
        b = reinterpret_cast<const float*>(matrix + k0);
        b_row = x.k;
      } else {
        for (std::int64_t j = 0; j < columns; ++j) {
          table.get<T>().to_f32(matrix + j * x.k + k0, right + j * dot_row, terms);
        }
      }
      if (in_place && consecutive) {
        a = reinterpret_cast<const float*>(x.a + rows.front() * x.k + k0);
        a_row = x.k;
      } else {
        widen_rows(table, x, rows, k0, terms, left, dot_row);
      }
      table.row_dots(a, a_row, b, b_row, result, columns, count, columns, terms, k0 > 0);
    }
    write_rows(table, x, rows, task, result, columns);
  });
}

template <class T>
void multiply(const simd::Table& table, const Runs& runs, const Operands<T>& x, const Task& task,
              float* scratch) {
  float* const left = scratch;
  float* const right = left + row_block * panel_terms;
  float* const result = right + panel_terms * panel_columns;
  const std::int64_t columns = task.end - task.begin;
  const std::int64_t result_row = rounded_up(columns, table.panel_width);
  const T* const matrix = x.b + task.expert * x.k * x.n + task.begin;
  each_row_block(runs, task.expert, [&](const std::vector<std::int64_t>& rows) {
    const auto count = static_cast<std::int64_t>(rows.size());
    for (std::int64_t k0 = 0; k0 < x.k; k0 += panel_terms) {
      const std::int64_t terms = std::min(panel_terms, x.k - k0);
      table.get<T>().pack_panels(matrix + k0 * x.n, x.n, terms, columns, right);
      widen_rows(table, x, rows, k0, terms, left, terms);
      table.panel_products(left, terms, 1, right, result, result_row, count, columns, terms,
                           k0 > 0);
    }
    write_rows(table, x, rows, task, result, result_row);
  });
}

// c (m, n) of one expert (+)= the sums over its rows.
template <class T, class U>
void multiply_weight(const simd::Table& table, const Runs& runs, const Operands<T>& x, U* c,
                     bool accumulate, const Task& task, float* scratch) {
  float* const left = scratch;
  float* const right = left + panel_terms * weight_rows;
  float* const result = right + panel_terms * panel_columns;  // of a source
  float* const total = result + weight_rows * panel_columns;  // of a row, over all sources
  const std::int64_t columns = task.end - task.begin, m = x.k;
  const std::int64_t result_row = rounded_up(columns, table.panel_width);
  for (std::int64_t i = 0; i < m; i += weight_rows) {
    const std::int64_t height = std::min(weight_rows, m - i);
    const auto at = [&](std::int64_t j) {
      return c + (task.expert * m + i + j) * x.n + task.begin;
    };
    for (std::int64_t j = 0; accumulate && j < height; ++j) {
      table.get<U>().to_f32(at(j), total + j * columns, columns);
    }
    bool first = !accumulate;
    for (std::int64_t s = 0; s < runs.sources(); ++s) {
      const Run own = runs.of(s, task.expert);
      for (std::int64_t r = own.begin; r < own.end; r += panel_terms) {
        const std::int64_t terms = std::min(panel_terms, own.end - r);
        table.get<T>().pack_panels(x.b + r * x.n + task.begin, x.n, terms, columns, right);
        for (std::int64_t p = 0; p < terms; ++p) {
          table.get<T>().to_f32(x.a + (r + p) * m + i, left + p * height, height);
        }
        table.panel_products(left, 1, height, right, result, result_row, height, columns, terms,
                             r > own.begin);
      }
      if (own.size() == 0) continue;
      for (std::int64_t j = 0; j < height; ++j) {
        if (first) {
          std::copy_n(result + j * result_row, columns, total + j * columns);
        } else {
          table.f32.accumulate(result + j * result_row, total + j * columns, columns);
        }
      }
      first = false;
    }
    for (std::int64_t j = 0; j < height; ++j) {
      table.get<U>().from_f32(total + j * columns, at(j), columns);
    }
  }
}

// ---- bf16 by native products ----
//
// As above, with blocks that fit the same scratch memory. Terms are added in
// ascending order, so an element of a row doesn't depend on the others here either.
namespace bf16 {

constexpr std::int64_t most_rows = 240, columns = 96, terms = 512;
constexpr std::int64_t weight_rows = 192, weight_columns = 128, weight_terms = 256;
static_assert(most_rows * terms / 2 + columns * terms / 2 + most_rows * columns <= scratch_floats);
static_assert(weight_rows * weight_terms / 2 + weight_columns * weight_terms / 2 +
                  2 * weight_rows * weight_columns <=
              scratch_floats);

using Table = simd::Table;
using Bf16Loops = simd::Bf16Loops;
using Pair = std::uint32_t;

// The rows of an expert in blocks of about equal size: f(the rows' numbers).
template <class F>
void each_block(const Runs& runs, std::int64_t expert, const F& f) {
  std::vector<std::int64_t> rows;
  for (std::int64_t s = 0; s < runs.sources(); ++s) {
    const Run own = runs.of(s, expert);
    for (std::int64_t r = own.begin; r < own.end; ++r) rows.push_back(r);
  }
  const std::int64_t count = std::ssize(rows), blocks = (count + most_rows - 1) / most_rows;
  const std::int64_t each = blocks == 0 ? 0 : rounded_up((count + blocks - 1) / blocks, 16);
  for (std::int64_t i = 0; i < count; i += each) {
    f(std::span(rows).subspan(static_cast<std::size_t>(i),
                              static_cast<std::size_t>(std::min(each, count - i))));
  }
}

// c = a b or a bᵀ for the columns of a task.
void multiply(const Bf16Loops& native, const Table& table, const Runs& runs,
              const Operands<BFloat16>& x, const Task& task, bool transposed, float* scratch) {
  auto* const left = reinterpret_cast<BFloat16*>(scratch);
  auto* const right = reinterpret_cast<Pair*>(scratch + most_rows * terms / 2);
  float* const result = scratch + (most_rows + columns) * terms / 2;
  const std::int64_t count = task.end - task.begin, width = rounded_up(count, 16);
  const BFloat16* const matrix =
      x.b + task.expert * x.k * x.n + task.begin * (transposed ? x.k : 1);
  each_block(runs, task.expert, [&](std::span<const std::int64_t> rows) {
    const std::int64_t height = std::ssize(rows);
    for (std::int64_t k0 = 0; k0 < x.k; k0 += terms) {
      const std::int64_t own = std::min(terms, x.k - k0), whole = rounded_up(own, 32);
      if (transposed) {
        native.pack_right_transposed({matrix + k0, x.k}, count, width, own, right);
      } else {
        native.pack_right({matrix + k0 * x.n, x.n}, own, count, right);
      }
      for (std::int64_t i = 0; i < height; ++i) {
        BFloat16* const to = left + i * whole;
        std::copy_n(x.a + rows[static_cast<std::size_t>(i)] * x.k + k0, own, to);
        std::fill(to + own, to + whole, BFloat16());
      }
      native.products(left, whole, right, result, rounded_up(height, 16), width, whole, k0 > 0);
    }
    for (std::int64_t i = 0; i < height; ++i) {
      table.bf16.from_f32(result + i * width,
                          x.c + rows[static_cast<std::size_t>(i)] * x.n + task.begin, count);
    }
  });
}

template <class U>
void multiply_weight(const Bf16Loops& native, const Table& table, const Runs& runs,
                     const Operands<BFloat16>& x, U* c, bool accumulate, const Task& task,
                     float* scratch) {
  auto* const left = reinterpret_cast<BFloat16*>(scratch);
  auto* const right = reinterpret_cast<Pair*>(scratch + weight_rows * weight_terms / 2);
  float* const result = scratch + (weight_rows + weight_columns) * weight_terms / 2;
  float* const total = result + weight_rows * weight_columns;  // of a row, over all sources
  const std::int64_t count = task.end - task.begin, width = rounded_up(count, 16), m = x.k;
  for (std::int64_t i = 0; i < m; i += weight_rows) {
    const std::int64_t height = std::min(weight_rows, m - i);
    const auto at = [&](std::int64_t j) {
      return c + (task.expert * m + i + j) * x.n + task.begin;
    };
    for (std::int64_t j = 0; accumulate && j < height; ++j) {
      table.get<U>().to_f32(at(j), total + j * count, count);
    }
    bool first = !accumulate;
    for (std::int64_t s = 0; s < runs.sources(); ++s) {
      const Run own = runs.of(s, task.expert);
      for (std::int64_t r = own.begin; r < own.end; r += weight_terms) {
        const std::int64_t some = std::min(weight_terms, own.end - r);
        native.pack_right({x.b + r * x.n + task.begin, x.n}, some, count, right);
        native.pack_left_transposed({x.a + r * m + i, m}, some, height, left, weight_terms);
        native.products(left, weight_terms, right, result, rounded_up(height, 16), width,
                        rounded_up(some, 32), r > own.begin);
      }
      if (own.size() == 0) continue;
      for (std::int64_t j = 0; j < height; ++j) {
        if (first) {
          std::copy_n(result + j * width, count, total + j * count);
        } else {
          table.f32.accumulate(result + j * width, total + j * count, count);
        }
      }
      first = false;
    }
    for (std::int64_t j = 0; j < height; ++j) {
      table.get<U>().from_f32(total + j * count, at(j), count);
    }
  }
}

}  // namespace bf16

void reserve(const Access& access, Context& context) {
  state_of(context).scratch(
      access, context,
      context.team().size() * scratch_floats * static_cast<std::int64_t>(sizeof(float)));
}

}  // namespace

void grouped_gemm(const Access& access, Context& context, const GroupedGemmArgs& args) {
  by_dtype(args.a.dtype(), [&]<class T>(T*) {
    const Runs runs(data<std::int64_t>(access, args.ends), args.ends.dim(0), args.b.dim(0));
    const Operands<T> x{data<T>(access, args.a), data<T>(access, args.b), data<T>(access, args.c),
                        args.a.dim(1), args.c.dim(1)};
    const simd::Table& table = *state_of(context).table;
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (const simd::Bf16Loops* const native = native_bf16_loops(context)) {
        run(access, context, tasks_of(runs, x.n, bf16::columns, 4), x.k,
            [&](const Task& task, float* scratch) {
              bf16::multiply(*native, table, runs, x, task, args.transpose_b, scratch);
            });
        return;
      }
    }
    run(access, context, tasks_of(runs, x.n, args.transpose_b ? dot_columns : panel_columns, 4),
        x.k, [&](const Task& task, float* scratch) {
          (args.transpose_b ? multiply_transposed<T> : multiply<T>)(table, runs, x, task, scratch);
        });
  });
}

void grouped_weight_gemm(const Access& access, Context& context,
                         const GroupedWeightGemmArgs& args) {
  const std::int64_t experts = args.c.dim(0), m = args.c.dim(1), n = args.c.dim(2);
  const Runs runs(data<std::int64_t>(access, args.ends), args.ends.dim(0), experts);
  const simd::Table& table = *state_of(context).table;
  by_dtype(args.a.dtype(), [&]<class T>(T*) {
    by_dtype(args.c.dtype(), [&]<class U>(U*) {
      const Operands<T> x{data<T>(access, args.a), data<T>(access, args.b), nullptr, m, n};
      U* const c = data<U>(access, args.c);
      for (std::int64_t e = 0; !args.accumulate && e < experts; ++e) {
        if (runs.rows(e) == 0) std::fill_n(c + e * m * n, m * n, U{});
      }
      if constexpr (std::is_same_v<T, BFloat16>) {
        if (const simd::Bf16Loops* const native = native_bf16_loops(context)) {
          run(access, context, tasks_of(runs, n, bf16::weight_columns, 4), m,
              [&](const Task& task, float* scratch) {
                bf16::multiply_weight(*native, table, runs, x, c, args.accumulate, task, scratch);
              });
          return;
        }
      }
      run(access, context, tasks_of(runs, n, panel_columns, 4), m,
          [&](const Task& task, float* scratch) {
            multiply_weight(table, runs, x, c, args.accumulate, task, scratch);
          });
    });
  });
}

void reserve_grouped_gemm(const Access& access, Context& context, const GroupedGemmArgs&) {
  reserve(access, context);
}
void reserve_grouped_weight_gemm(const Access& access, Context& context,
                                 const GroupedWeightGemmArgs&) {
  reserve(access, context);
}

}  // namespace trident::cpu

#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/cpu/attention_shares.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/head_rows.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {
namespace {

simd::AttentionSizes sizes_of(const AttentionShape& shape) {
  return {.queries = shape.sequence,
          .keys = shape.keys(),
          .head_dim = shape.head_dim,
          .value_dim = shape.value_dim(),
          .scale = shape.score_scale()};
}

std::int64_t task_floats(Context& context, const AttentionShape& shape, bool backward,
                         const AttentionShares& shares) {
  const simd::Table& table = *state_of(context).table;
  const std::int64_t floats =
      backward ? table.attention_backward_scratch(sizes_of(shape), shares.any_whole())
               : table.attention_forward_scratch(sizes_of(shape));
  return (floats + 15) / 16 * 16;
}
float* take_scratch(const Access& access, Context& context, std::int64_t floats) {
  return reinterpret_cast<float*>(state_of(context).scratch(
      access, context, floats * static_cast<std::int64_t>(sizeof(float))));
}

// The floats of the AttentionSums of a thread, which has up to two parts of tasks. They share those
// of the queries, as at most one of each is needed.
struct SumFloats {
  SumFloats(const AttentionShape& shape, int most_parts) : parts(most_parts) {
    if (parts == 0) return;
    const auto rounded = [](std::int64_t n) { return (n + 15) / 16 * 16; };
    keys = shape.keys() * rounded(shape.head_dim);
    values = shape.keys() * rounded(shape.value_dim());
    queries = shape.sequence * rounded(shape.head_dim);
  }
  std::int64_t all() const { return parts * (keys + values) + 2 * queries; }

  std::int64_t parts, keys = 0, values = 0, queries = 0;
};

// The division of a call's work over threads, and the floats that each of them needs.
struct CallShares {
  CallShares(Context& context, const AttentionShape& shape, const AttentionMask& mask,
             bool backward, int threads)
      : shares(shape, mask, backward, threads),
        task(task_floats(context, shape, backward, shares)),
        sums(shape, backward ? shares.most_parts() : 0),
        floats(task + sums.all()) {}

  AttentionShares shares;
  std::int64_t task;
  SumFloats sums;
  std::int64_t floats;
};

// Divides the work over fewer threads where the scratch of all would take too much memory.
CallShares shares_of(Context& context, const AttentionShape& shape, const AttentionMask& mask,
                     bool backward) {
  constexpr std::int64_t most_floats = std::int64_t{1} << 28;  // 1 GiB
  const int threads = context.team().size();
  CallShares shares(context, shape, mask, backward, threads);
  const std::int64_t fit = std::max(most_floats / shares.floats, shape.batch * shape.groups);
  if (!shares.shares.divides() || shares.shares.threads() <= fit) return shares;
  return CallShares(context, shape, mask, backward, static_cast<int>(fit));
}

// The scratch of a call: that of each thread with its sums, then `shared` floats.
struct CallScratch : CallShares {
  CallScratch(const Access& access, Context& context, const AttentionShape& shape,
              const AttentionMask& mask, bool backward, std::int64_t shared)
      : CallShares(shares_of(context, shape, mask, backward)) {
    if (shares.threads() > 0) {
      memory = take_scratch(access, context, shares.threads() * floats + shared);
    }
  }
  float* of_thread(int thread) const { return memory + thread * floats; }
  float* shared() const { return memory + shares.threads() * floats; }
  // The sums of a thread's first or last share.
  simd::AttentionSums sums_of(int thread, bool first) const {
    float* const queries = of_thread(thread) + task;
    const bool second = !first && sums.parts > 1;
    float* const keys = queries + 2 * sums.queries + (second ? sums.keys + sums.values : 0);
    return {.keys = keys,
            .values = keys + sums.keys,
            .first_queries = queries,
            .last_queries = queries + sums.queries};
  }
  // Runs body(share, thread, whether it is the thread's first) for all shares on the team.
  template <class Body>
  void run(Context& context, Body body) const {
    if (shares.threads() == 0) return;
    context.team().run(shares.threads(), [&](int thread) {
      bool first = true;
      for (const AttentionShare& share : shares.of(thread)) {
        body(share, thread, first);
        first = false;
      }
    });
  }

  float* memory = nullptr;
};

// The gradients of the sinks of each sample.
std::int64_t sink_floats(const AttentionArgs& args) {
  return args.sinks ? args.shape.batch * args.shape.heads : 0;
}

// Scratch floats for the scores of one query.
std::int64_t score_floats(const CacheArgs& args) {
  const std::int64_t held = args.begin + args.shape.sequence - args.cache_begin;
  return ((args.window > 0 ? std::min(args.window, held) : held) + 15) / 16 * 16;
}

// The rows of `x` that belong to a sample of `positions`, from the head's first element on.
template <class T>
simd::Rows<T> rows_of(const Access& access, const HeadColumns& x, std::int64_t sample,
                      std::int64_t positions, std::int64_t head, std::int64_t dim) {
  return head_rows<T>(access, x).from(sample * positions, head * dim);
}

// The task of a sample and a key/value head, without the members for backward.
template <class T>
simd::AttentionTask<T> make_task(const Access& access, const AttentionArgs& args,
                                 std::int64_t sample, std::int64_t group) {
  const AttentionShape& shape = args.shape;
  const std::int64_t heads = shape.heads / shape.groups, head = group * heads;
  const auto rows = [&](const HeadColumns& x, std::int64_t positions, std::int64_t first,
                        std::int64_t dim) {
    const simd::Rows<T> found = rows_of<T>(access, x, sample, positions, first, dim);
    return simd::Rows<const T>{found.data, found.stride};
  };
  simd::AttentionTask<T> task;
  static_cast<simd::AttentionSizes&>(task) = sizes_of(shape);
  task.heads = heads;
  task.q = rows(args.in.query, shape.sequence, head, shape.head_dim);
  task.k = rows(args.in.key, shape.keys(), group, shape.head_dim);
  task.v = rows(args.in.value, shape.keys(), group, shape.value_dim());
  task.out = rows_of<T>(access, {args.out}, sample, shape.sequence, head, shape.value_dim());
  task.log_sum_exp =
      data<float>(access, args.log_sum_exp) + (sample * shape.heads + head) * shape.sequence;
  const AttentionMask& mask = args.mask;
  task.query_begin = mask.query_begin;
  task.key_begin = mask.key_begin;
  task.window = mask.window;
  if (mask.document_begins) {
    task.document_begins =
        data<std::int64_t>(access, mask.document_begins) + sample * shape.sequence;
  }
  if (args.sinks) task.sinks = data<T>(access, args.sinks) + head;
  if (args.dropout.probability > 0) {
    task.dropout = dropout_of(args.dropout);
    task.sample =
        static_cast<std::uint64_t>(data<std::int64_t>(access, args.dropout.samples)[sample]);
    task.first_head = args.head_offset + head;
    task.dropout_positions = args.dropout_positions > 0 ? args.dropout_positions : shape.keys();
  }
  return task;
}

// The rows of gradients that a task writes.
template <class T>
void add_gradients(const Access& access, const AttentionBackwardArgs& args, std::int64_t sample,
                   std::int64_t group, simd::AttentionTask<T>& task) {
  const AttentionShape& shape = args.forward.shape;
  const std::int64_t d = shape.head_dim, keys = shape.keys();
  task.grad_out = {
      data<T>(access, args.grad_out) + (task.out.data - data<T>(access, args.forward.out)),
      task.out.stride};
  task.grad_q = rows_of<T>(access, args.grad.query, sample, shape.sequence, group * task.heads, d);
  task.grad_k = rows_of<T>(access, args.grad.key, sample, keys, group, d);
  task.grad_v = rows_of<T>(access, args.grad.value, sample, keys, group, shape.value_dim());
}

// The parts of a divided task and their sums, in the order of their units.
struct DividedTask {
  std::int64_t task = 0;
  std::vector<AttentionShare> shares;
  std::vector<simd::AttentionSums> sums;
};

std::vector<DividedTask> divided_tasks(const CallScratch& scratch) {
  std::vector<DividedTask> all;
  for (int thread = 0; thread < scratch.shares.threads(); ++thread) {
    bool first = true;
    for (const AttentionShare& share : scratch.shares.of(thread)) {
      if (!scratch.shares.is_whole(share)) {
        if (all.empty() || all.back().task != share.task) all.push_back({share.task, {}, {}});
        all.back().shares.push_back(share);
        all.back().sums.push_back(scratch.sums_of(thread, first));
      }
      first = false;
    }
  }
  return all;
}

// Adds up the parts of a divided task: rows [size · thread / threads, …) of its gradients.
template <class T>
void merge(const simd::Leaves<T>& leaves, const simd::AttentionTask<T>& task,
           const DividedTask& parts, std::int64_t units, int thread, int threads) {
  std::vector<const float*> from;
  const auto write = [&](std::int64_t first, std::int64_t rows, std::int64_t d, float factor,
                         simd::Rows<T> to) {
    const std::int64_t begin = first + rows * thread / threads,
                       end = first + rows * (thread + 1) / threads;
    leaves.attention_sum(from.data(), std::ssize(from), begin, end, d, factor, to);
    from.clear();
  };
  // Each part of a task of one head has keys of its own.
  for (std::size_t i = 0; task.heads == 1 && i < parts.shares.size(); ++i) {
    const std::int64_t first = parts.shares[i].begin * simd::attention_block;
    const std::int64_t rows =
        std::min(parts.shares[i].end * simd::attention_block, task.keys) - first;
    from.push_back(parts.sums[i].keys);
    write(first, rows, task.head_dim, 1, task.grad_k);
    from.push_back(parts.sums[i].values);
    write(first, rows, task.value_dim, 1, task.grad_v);
  }
  if (task.heads > 1) {
    for (const auto& sums : parts.sums) from.push_back(sums.keys);
    write(0, task.keys, task.head_dim, 1, task.grad_k);
    for (const auto& sums : parts.sums) from.push_back(sums.values);
    write(0, task.keys, task.value_dim, 1, task.grad_v);
  }
  const float factor = task.scale;
  for (std::int64_t head = 0; head < task.heads; ++head) {
    for (std::size_t i = 0; i < parts.shares.size(); ++i) {
      const std::int64_t begin = parts.shares[i].begin - head * units,
                         end = parts.shares[i].end - head * units;
      if (begin > 0 && begin < units) from.push_back(parts.sums[i].first_queries);
      if (begin <= 0 && end > 0 && end < units) from.push_back(parts.sums[i].last_queries);
    }
    if (!from.empty()) {
      write(0, task.queries, task.head_dim, factor, task.grad_q.from(0, head * task.head_dim));
    }
  }
}

// The loops of this context's instruction set, with native bf16 products where they are allowed.
template <class T>
simd::Leaves<T> loops_of(Context& context) {
  simd::Leaves<T> leaves = state_of(context).table->get<T>();
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (const simd::Bf16Loops* const native = native_bf16_loops(context)) {
      leaves.attention_forward = native->attention_forward;
      leaves.attention_backward = native->attention_backward;
    }
  }
  return leaves;
}

}  // namespace

void attention_forward(const Access& access, Context& context, const AttentionArgs& args) {
  const CallScratch scratch(access, context, args.shape, args.mask, false, 0);
  by_dtype(args.out.dtype(), [&]<class T>(T*) {
    const simd::Leaves<T> leaves = loops_of<T>(context);
    const std::int64_t groups = args.shape.groups;
    scratch.run(context, [&](const AttentionShare& share, int thread, bool) {
      leaves.attention_forward(make_task<T>(access, args, share.task / groups, share.task % groups),
                               share.begin, share.end, scratch.of_thread(thread));
    });
  });
}

void attention_backward(const Access& access, Context& context, const AttentionBackwardArgs& args) {
  const AttentionArgs& forward = args.forward;
  const AttentionShape& shape = forward.shape;
  const CallScratch scratch(access, context, shape, forward.mask, true, sink_floats(forward));
  by_dtype(forward.out.dtype(), [&]<class T>(T*) {
    const simd::Leaves<T> leaves = loops_of<T>(context);
    const auto task_of = [&](std::int64_t number) {
      const std::int64_t sample = number / shape.groups, group = number % shape.groups;
      auto task = make_task<T>(access, forward, sample, group);
      add_gradients(access, args, sample, group, task);
      if (forward.sinks) {
        task.grad_sinks = scratch.shared() + sample * shape.heads + group * task.heads;
      }
      return task;
    };
    scratch.run(context, [&](const AttentionShare& share, int thread, bool first) {
      leaves.attention_backward(task_of(share.task), share.begin, share.end,
                                scratch.sums_of(thread, first), scratch.of_thread(thread));
    });
    const std::vector<DividedTask> divided = divided_tasks(scratch);
    if (divided.empty()) return;
    const int threads = scratch.shares.threads();
    context.team().run(threads, [&](int thread) {
      for (const DividedTask& parts : divided) {
        merge(leaves, task_of(parts.task), parts, scratch.shares.units_of_head(), thread, threads);
      }
    });
  });
  if (!forward.sinks) return;
  float* const total = data<float>(access, args.grad_sinks);
  for (std::int64_t i = 0; i < sink_floats(forward); ++i) {
    total[i % shape.heads] += scratch.shared()[i];
  }
}

void merge_attention(const Access& access, Context& context, const AttentionMergeArgs& args) {
  const std::int64_t e = args.shape.value_dim(), heads = args.shape.heads, s = args.shape.sequence;
  float* const out = data<float>(access, args.out);
  float* const sums = data<float>(access, args.log_sum_exp);
  const float* const part_sums = data<float>(access, args.part_log_sum_exp);
  by_dtype(args.part.dtype(), [&]<class T>(T*) {
    const T* const part = data<T>(access, args.part);
    const auto& leaves = state_of(context).table->get<T>();
    context.team().parallel_for(
        args.shape.batch * s, grain_rows(heads * e), [&](std::int64_t begin, std::int64_t end) {
          std::vector<float> row(static_cast<std::size_t>(e));
          for (std::int64_t t = begin; t < end; ++t) {
            for (std::int64_t head = 0; head < heads; ++head) {
              const std::int64_t at = (t / s * heads + head) * s + t % s;
              const float own = sums[at], other = part_sums[at], top = std::max(own, other);
              if (top == -std::numeric_limits<float>::infinity()) continue;
              const float keep = std::exp(own - top), take = std::exp(other - top);
              const float total = keep + take;
              sums[at] = top + std::log(total);
              float* const to = out + (t * heads + head) * e;
              leaves.to_f32(part + (t * heads + head) * e, row.data(), e);
              for (std::int64_t i = 0; i < e; ++i) {
                to[i] = (to[i] * keep + row[static_cast<std::size_t>(i)] * take) / total;
              }
            }
          }
        });
  });
}

void append_to_cache(const Access& access, Context&, const CacheArgs& args) {
  const AttentionShape& shape = args.shape;
  const std::int64_t keys = shape.groups * shape.head_dim;
  const std::int64_t values = shape.groups * shape.value_dim(), positions = args.cache.dim(1);
  by_dtype(args.cache.dtype(), [&]<class T>(T*) {
    T* const cache = data<T>(access, args.cache);
    for (std::int64_t row = 0; row < shape.batch * shape.sequence; ++row) {
      if (row % shape.sequence < args.skipped) continue;
      const std::int64_t sample = row / shape.sequence;
      const std::int64_t slot = args.begin - args.cache_begin + row % shape.sequence;
      T* const to = cache + (sample * positions + slot) * (keys + values);
      std::copy_n(rows_of<T>(access, args.in.key, row, 1, 0, 0).data, keys, to);
      std::copy_n(rows_of<T>(access, args.in.value, row, 1, 0, 0).data, values, to + keys);
    }
  });
}

void attention_cached(const Access& access, Context& context, const CacheArgs& args,
                      const Tensor& to) {
  const AttentionShape& shape = args.shape;
  const std::int64_t d = shape.head_dim, e = shape.value_dim(), heads = shape.heads / shape.groups;
  const std::int64_t positions = args.cache.dim(1), pair = shape.groups * (d + e);
  const std::int64_t tasks = shape.batch * shape.sequence * shape.heads;
  const std::int64_t threads = std::min<std::int64_t>(context.team().size(), tasks);
  if (threads == 0) return;
  const std::int64_t floats = score_floats(args);
  auto* const scratch = take_scratch(access, context, threads * floats);
  by_dtype(to.dtype(), [&]<class T>(T*) {
    const auto& leaves = state_of(context).table->get<T>();
    const T* const cache = data<T>(access, args.cache);
    const T* const sinks = args.sinks ? data<T>(access, args.sinks) : nullptr;
    T* const out = data<T>(access, to);
    context.team().run(static_cast<int>(threads), [&](int thread) {
      for (std::int64_t i = tasks * thread / threads; i < tasks * (thread + 1) / threads; ++i) {
        const std::int64_t row = i / shape.heads, head = i % shape.heads, group = head / heads;
        const std::int64_t end = args.begin - args.cache_begin + row % shape.sequence + 1;
        const std::int64_t first =
            args.window > 0 ? std::max<std::int64_t>(0, end - args.window) : 0;
        const T* const cached = cache + (row / shape.sequence * positions + first) * pair;
        leaves.attend({.q = rows_of<T>(access, args.in.query, row, 1, head, d).data,
                       .keys = cached + group * d,
                       .values = cached + shape.groups * d + group * e,
                       .row = pair,
                       .count = end - first,
                       .head_dim = d,
                       .value_dim = e,
                       .scale = shape.score_scale(),
                       .sink = sinks != nullptr ? sinks + head : nullptr},
                      scratch + thread * floats, out + i * e);
      }
    });
  });
}

void reserve_attention_forward(const Access& access, Context& context, const AttentionArgs& args) {
  CallScratch(access, context, args.shape, args.mask, false, 0);
}
void reserve_attention_cached(const Access& access, Context& context, const CacheArgs& args,
                              const Tensor&) {
  const std::int64_t threads = std::min<std::int64_t>(
      context.team().size(), args.shape.batch * args.shape.sequence * args.shape.heads);
  if (threads > 0) take_scratch(access, context, threads * score_floats(args));
}
void reserve_attention_backward(const Access& access, Context& context,
                                const AttentionBackwardArgs& args) {
  CallScratch(access, context, args.forward.shape, args.forward.mask, true,
              sink_floats(args.forward));
}

}  // namespace trident::cpu

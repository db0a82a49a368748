#include "kernels/attention.h"

#include <algorithm>

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
          .value_dim = shape.value_dim()};
}

// A task is one sample and one key/value head.
std::int64_t tasks_of(const AttentionShape& shape) {
  return shape.batch * shape.groups;
}

std::int64_t task_floats(Context& context, const AttentionShape& shape, bool backward) {
  const simd::Table& table = *state_of(context).table;
  const std::int64_t floats = backward ? table.attention_backward_scratch(sizes_of(shape))
                                       : table.attention_forward_scratch(sizes_of(shape));
  return (floats + 15) / 16 * 16;
}
float* take_scratch(const Access& access, Context& context, std::int64_t floats) {
  return reinterpret_cast<float*>(state_of(context).scratch(
      access, context, floats * static_cast<std::int64_t>(sizeof(float))));
}

// The scratch of a call: that of each thread, then `shared` floats.
struct CallScratch {
  CallScratch(const Access& access, Context& context, const AttentionShape& shape, bool backward,
              std::int64_t shared)
      : threads(std::min<std::int64_t>(context.team().size(), tasks_of(shape))),
        floats(task_floats(context, shape, backward)) {
    if (threads > 0) of_threads = take_scratch(access, context, threads * floats + shared);
  }
  float* of_thread(int thread) const { return of_threads + thread * floats; }
  float* shared() const { return of_threads + threads * floats; }

  std::int64_t threads, floats;
  float* of_threads = nullptr;
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

// The task of a sample and a key/value head, without what only backward needs.
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

// Runs body(sample, group, scratch of the thread) for each task on the team.
template <class Body>
void for_each_task(Context& context, const AttentionShape& shape, const CallScratch& scratch,
                   Body body) {
  if (scratch.threads == 0) return;
  const std::int64_t tasks = tasks_of(shape);
  context.team().run(static_cast<int>(scratch.threads), [&](int thread) {
    const std::int64_t end = tasks * (thread + 1) / scratch.threads;
    for (std::int64_t i = tasks * thread / scratch.threads; i < end; ++i) {
      body(i / shape.groups, i % shape.groups, scratch.of_thread(thread));
    }
  });
}

}  // namespace

void attention_forward(const Access& access, Context& context, const AttentionArgs& args) {
  const CallScratch scratch(access, context, args.shape, false, 0);
  by_dtype(args.out.dtype(), [&]<class T>(T*) {
    const auto& leaves = state_of(context).table->get<T>();
    for_each_task(context, args.shape, scratch,
                  [&](std::int64_t sample, std::int64_t group, float* memory) {
                    leaves.attention_forward(make_task<T>(access, args, sample, group), memory);
                  });
  });
}

void attention_backward(const Access& access, Context& context, const AttentionBackwardArgs& args) {
  const AttentionArgs& forward = args.forward;
  const AttentionShape& shape = forward.shape;
  const std::int64_t heads = shape.heads / shape.groups, e = shape.value_dim();
  const CallScratch scratch(access, context, shape, true, sink_floats(forward));
  by_dtype(forward.out.dtype(), [&]<class T>(T*) {
    const auto& leaves = state_of(context).table->get<T>();
    for_each_task(
        context, shape, scratch, [&](std::int64_t sample, std::int64_t group, float* memory) {
          auto task = make_task<T>(access, forward, sample, group);
          const std::int64_t d = shape.head_dim, keys = shape.keys();
          task.grad_out = {
              data<T>(access, args.grad_out) + (task.out.data - data<T>(access, forward.out)),
              task.out.stride};
          task.grad_q =
              rows_of<T>(access, args.grad.query, sample, shape.sequence, group * heads, d);
          task.grad_k = rows_of<T>(access, args.grad.key, sample, keys, group, d);
          task.grad_v = rows_of<T>(access, args.grad.value, sample, keys, group, e);
          if (forward.sinks) {
            task.grad_sinks = scratch.shared() + sample * shape.heads + group * heads;
          }
          leaves.attention_backward(task, memory);
        });
  });
  if (!forward.sinks) return;
  float* const total = data<float>(access, args.grad_sinks);
  for (std::int64_t i = 0; i < sink_floats(forward); ++i) {
    total[i % shape.heads] += scratch.shared()[i];
  }
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
                       .sink = sinks != nullptr ? sinks + head : nullptr},
                      scratch + thread * floats, out + i * e);
      }
    });
  });
}

void reserve_attention_forward(const Access& access, Context& context, const AttentionArgs& args) {
  CallScratch(access, context, args.shape, false, 0);
}
void reserve_attention_cached(const Access& access, Context& context, const CacheArgs& args,
                              const Tensor&) {
  const std::int64_t threads = std::min<std::int64_t>(
      context.team().size(), args.shape.batch * args.shape.sequence * args.shape.heads);
  if (threads > 0) take_scratch(access, context, threads * score_floats(args));
}
void reserve_attention_backward(const Access& access, Context& context,
                                const AttentionBackwardArgs& args) {
  CallScratch(access, context, args.forward.shape, true, sink_floats(args.forward));
}

}  // namespace trident::cpu

#include "kernels/attention.h"

#include <algorithm>

#include "kernels/cpu/dropout.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {
namespace {

std::int64_t scratch_floats(Context& context, const AttentionShape& shape, bool backward) {
  const simd::Table& table = *state_of(context).table;
  return (table.attention_scratch(shape.sequence, shape.head_dim, backward) + 15) / 16 * 16;
}
float* take_scratch(const Access& access, Context& context, std::int64_t floats) {
  return reinterpret_cast<float*>(state_of(context).scratch(
      access, context, floats * static_cast<std::int64_t>(sizeof(float))));
}
void reserve(const Access& access, Context& context, const AttentionShape& shape, bool backward) {
  const std::int64_t threads =
      std::min<std::int64_t>(context.team().size(), shape.batch * shape.groups);
  if (threads > 0) {
    take_scratch(access, context, threads * scratch_floats(context, shape, backward));
  }
}

// Scratch floats for the scores of one query.
std::int64_t score_floats(const CacheArgs& args) {
  return (args.begin + args.shape.sequence + 15) / 16 * 16;
}

// Runs body(task index, scratch) for each index on the team; each thread has its own scratch.
template <class Body>
void for_each_task(const Access& access, Context& context, const AttentionShape& shape,
                   std::int64_t tasks, bool backward, Body body) {
  const std::int64_t floats = scratch_floats(context, shape, backward);
  const std::int64_t threads = std::min<std::int64_t>(context.team().size(), tasks);
  if (threads == 0) return;
  auto* const scratch = take_scratch(access, context, threads * floats);
  context.team().run(static_cast<int>(threads), [&](int thread) {
    for (std::int64_t i = tasks * thread / threads; i < tasks * (thread + 1) / threads; ++i) {
      body(i, scratch + thread * floats);
    }
  });
}

// Fills the part of a task that forward and backward share, for `heads` query heads from `head` on.
template <class T>
simd::AttentionTask<T> make_task(const Access& access, const AttentionShape& shape,
                                 const Tensor& qkv, const Tensor& out, const Tensor& log_sum_exp,
                                 const DropoutArgs& dropout, std::int64_t head_offset,
                                 std::int64_t sample, std::int64_t head, std::int64_t heads) {
  const std::int64_t group = head / (shape.heads / shape.groups);
  simd::AttentionTask<T> task;
  task.sequence = shape.sequence;
  task.head_dim = shape.head_dim;
  task.heads = heads;
  task.row = shape.row();
  task.out_row = shape.heads * shape.head_dim;
  const T* const base = data<T>(access, qkv) + sample * shape.sequence * task.row;
  task.q = base + head * shape.head_dim;
  task.k = base + (shape.heads + group) * shape.head_dim;
  task.v = base + (shape.heads + shape.groups + group) * shape.head_dim;
  task.out = data<T>(access, out) + sample * shape.sequence * task.out_row + head * shape.head_dim;
  task.log_sum_exp =
      data<float>(access, log_sum_exp) + (sample * shape.heads + head) * shape.sequence;
  if (dropout.probability > 0) {
    task.dropout = dropout_of(dropout);
    task.sample = static_cast<std::uint64_t>(data<std::int64_t>(access, dropout.samples)[sample]);
    task.first_head = head_offset + head;
  }
  return task;
}

}  // namespace

void attention_forward(const Access& access, Context& context, const AttentionArgs& args) {
  const AttentionShape& shape = args.shape;
  const std::int64_t heads = shape.heads / shape.groups;  // query heads in a group
  by_dtype(args.qkv.dtype(), [&]<class T>(T*) {
    const auto& leaves = state_of(context).table->get<T>();
    for_each_task(
        access, context, shape, shape.batch * shape.groups, false,
        [&](std::int64_t i, float* scratch) {
          leaves.attention_forward(
              make_task<T>(access, shape, args.qkv, args.out, args.log_sum_exp, args.dropout,
                           args.head_offset, i / shape.groups, i % shape.groups * heads, heads),
              scratch);
        });
  });
}

void append_to_cache(const Access& access, Context&, const CacheArgs& args) {
  const AttentionShape& shape = args.shape;
  const std::int64_t pairs = 2 * shape.groups * shape.head_dim, positions = args.cache.dim(1);
  by_dtype(args.qkv.dtype(), [&]<class T>(T*) {
    const T* const qkv = data<T>(access, args.qkv);
    T* const cache = data<T>(access, args.cache);
    for (std::int64_t row = 0; row < shape.batch * shape.sequence; ++row) {
      const std::int64_t sample = row / shape.sequence, s = row % shape.sequence;
      std::copy_n(qkv + row * shape.row() + shape.heads * shape.head_dim, pairs,
                  cache + (sample * positions + args.begin + s) * pairs);
    }
  });
}

void attention_cached(const Access& access, Context& context, const CacheArgs& args,
                      const Tensor& to) {
  const AttentionShape& shape = args.shape;
  const std::int64_t d = shape.head_dim, pairs = 2 * shape.groups * d;
  const std::int64_t positions = args.cache.dim(1), heads = shape.heads / shape.groups;
  const std::int64_t tasks = shape.batch * shape.sequence * shape.heads;
  const std::int64_t threads = std::min<std::int64_t>(context.team().size(), tasks);
  if (threads == 0) return;
  const std::int64_t floats = score_floats(args);
  auto* const scratch = take_scratch(access, context, threads * floats);
  by_dtype(args.qkv.dtype(), [&]<class T>(T*) {
    const auto& leaves = state_of(context).table->get<T>();
    const T* const qkv = data<T>(access, args.qkv);
    const T* const cache = data<T>(access, args.cache);
    T* const out = data<T>(access, to);
    context.team().run(static_cast<int>(threads), [&](int thread) {
      for (std::int64_t i = tasks * thread / threads; i < tasks * (thread + 1) / threads; ++i) {
        const std::int64_t row = i / shape.heads, head = i % shape.heads;
        const T* const keys = cache + row / shape.sequence * positions * pairs + head / heads * d;
        leaves.attend(qkv + row * shape.row() + head * d, keys, keys + shape.groups * d, pairs,
                      args.begin + row % shape.sequence + 1, d, scratch + thread * floats,
                      out + i * d);
      }
    });
  });
}

void attention_backward(const Access& access, Context& context, const AttentionBackwardArgs& args) {
  const AttentionShape& shape = args.shape;
  const std::int64_t heads = shape.heads / shape.groups;
  by_dtype(args.qkv.dtype(), [&]<class T>(T*) {
    const auto& leaves = state_of(context).table->get<T>();
    const T* const qkv = data<T>(access, args.qkv);
    T* const grad_qkv = data<T>(access, args.grad_qkv);
    for_each_task(access, context, shape, shape.batch * shape.groups, true,
                  [&](std::int64_t i, float* scratch) {
                    auto task = make_task<T>(access, shape, args.qkv, args.out, args.log_sum_exp,
                                             args.dropout, args.head_offset, i / shape.groups,
                                             i % shape.groups * heads, heads);
                    task.grad_out =
                        data<T>(access, args.grad_out) + (task.out - data<T>(access, args.out));
                    task.grad_q = grad_qkv + (task.q - qkv);
                    task.grad_k = grad_qkv + (task.k - qkv);
                    task.grad_v = grad_qkv + (task.v - qkv);
                    leaves.attention_backward(task, scratch);
                  });
  });
}

void reserve_attention_forward(const Access& access, Context& context, const AttentionArgs& args) {
  reserve(access, context, args.shape, false);
}
void reserve_attention_cached(const Access& access, Context& context, const CacheArgs& args,
                              const Tensor&) {
  const std::int64_t threads = std::min<std::int64_t>(
      context.team().size(), args.shape.batch * args.shape.sequence * args.shape.heads);
  if (threads > 0) take_scratch(access, context, threads * score_floats(args));
}
void reserve_attention_backward(const Access& access, Context& context,
                                const AttentionBackwardArgs& args) {
  reserve(access, context, args.shape, true);
}

}  // namespace trident::cpu

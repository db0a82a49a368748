#include "parallel/zero/gradient_reduction.h"

#include <utility>

#include "base/error.h"
#include "kernels/elementwise.h"

namespace trident {

GradientReduction::GradientReduction(Context& context, ParameterBuckets& buckets,
                                     const Topology& topology, const GradientOptions& options)
    : buckets_(buckets), topology_(topology), options_(options) {
  for (Bucket& bucket : buckets_.buckets()) {
    auto& list = slots_.emplace_back(static_cast<std::size_t>(bucket.layout.uses()));
    for (std::size_t use = 0; use < list.size(); ++use) {
      Slot& slot = list[use];
      if (!transient(bucket)) {
        slot.full = context.empty({bucket.layout.elements}, dtype_of(bucket), Category::gradient);
        slot.sum = slot.full.flat(bucket.begin, bucket.count);
        bind(bucket, static_cast<int>(use), slot.full);
      } else if (use == 0 || each_round(bucket)) {
        slot.sum = context.empty({bucket.count}, dtype_of(bucket), Category::gradient);
      }
    }
    bucket.gradient = list[0].sum;
    for (const BucketEntry& entry : bucket.layout.entries) {
      if (entry.parameter->uses() != bucket.layout.uses()) {
        throw Error("GradientReduction: parameter " + entry.parameter->name() +
                    " has other uses than its bucket");
      }
      entry.parameter->set_gradient_memory(this);
    }
  }
}

GradientReduction::~GradientReduction() {
  for (const Bucket& bucket : buckets_.buckets()) {
    for (const BucketEntry& entry : bucket.layout.entries) {
      entry.parameter->set_gradient_memory(nullptr);
    }
  }
}

void GradientReduction::bind(const Bucket& bucket, int use, const Tensor& full) {
  for (const BucketEntry& entry : bucket.layout.entries) {
    Parameter& parameter = *entry.parameter;
    parameter.bind_gradient(
        use, full ? full.flat(entry.offset, entry.numel).view(parameter.spec().placement.local())
                  : Tensor());
    parameter.set_stale(use);
  }
}

void GradientReduction::open(Context& context, Parameter& parameter, int use) {
  // Reduce postponed buffers first, or both would be in memory.
  reduce_postponed(context);
  const std::size_t index = buckets_.bucket_of(parameter);
  Tensor& full = slot(index, use).full;
  full = context.empty({bucket(index).layout.elements}, dtype_of(bucket(index)),
                       options_.long_rounds ? Category::gradient : Category::communication);
  bind(bucket(index), use, full);
}

void GradientReduction::begin() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    for (std::size_t use = 0; use < slots_[i].size(); ++use) {
      Slot& slot = slots_[i][use];
      slot.missing = static_cast<int>(bucket(i).layout.entries.size());
      slot.begun = false;
      if (transient(bucket(i))) slot.full = Tensor();
      bind(bucket(i), static_cast<int>(use), slot.full);
    }
  }
}

void GradientReduction::ready(Context& context, const Parameter& parameter, int use) {
  const std::size_t index = buckets_.bucket_of(parameter);
  Slot& slot = this->slot(index, use);
  if (slot.missing == 0) {
    throw Error("GradientReduction: the gradient of " + parameter.name() + " is ready twice");
  }
  if (--slot.missing > 0) return;
  clear_stale(context, index, use);
  if (options_.each_round) slot.missing = static_cast<int>(bucket(index).layout.entries.size());
  // Not shared with another rank: accumulate locally, no reduction.
  if (options_.each_round && !each_round(bucket(index))) return;
  if (adds_uses_first(bucket(index))) return;  // finish() reduces it
  // With several rounds, the next one adds to another buffer, so this one is reduced now.
  if (!each_round(bucket(index)) && postpones(bucket(index))) {
    postponed_.emplace_back(index, use);
    return;
  }
  reduce(context, index, use);
}

void GradientReduction::reduce_postponed(Context& context) {
  for (const auto& [index, use] : std::exchange(postponed_, {})) reduce(context, index, use);
}

// Zeroes the gradients that no micro-batch has added to.
void GradientReduction::clear_stale(Context& context, std::size_t index, int use) {
  for (const BucketEntry& entry : bucket(index).layout.entries) {
    Parameter& parameter = *entry.parameter;
    const Tensor gradient = parameter.open_gradient(context, use);
    if (parameter.take_stale(use)) fill(context, gradient, 0);
  }
}

void GradientReduction::reduce(Context& context, std::size_t index, int use) {
  const Bucket& of = bucket(index);
  if (!of.reduces_gradient() && !each_round(of)) return;
  // Full buffers are large, so only one is reduced while others are filled.
  if (transient(of)) collect(context);
  Slot& slot = this->slot(index, use);
  const Async async = options_.overlap ? Async::yes : Async::no;
  // collect() sums over the replicas, unless there is no sum before it.
  const ProcessGroup& first = of.shared() ? of.sharing : of.replicas;
  Work work;
  if (of.shared() && buckets_.zero_stage() > 0) {
    work = first.reduce_scatter(context, slot.full, slot.full.flat(of.begin, of.count),
                                ReduceOp::sum, async);
  } else if (of.reduces_gradient()) {
    work = first.all_reduce(context, slot.full, ReduceOp::sum, async);
  }
  running_.push_back({index, use, slot.full, std::move(work)});
  if (!transient(of)) return;
  // The next round's gradients open a buffer of their own.
  slot.full = Tensor();
  bind(of, use, {});
}

void GradientReduction::collect(Context& context) {
  for (const Reduction& reduction : running_) {
    reduction.work.wait(context);
    const Bucket& of = bucket(reduction.bucket);
    const Tensor part = reduction.full.flat(of.begin, of.count);
    if (of.replicas.defined() && of.shared()) of.replicas.all_reduce(context, part);
    if (!transient(of)) continue;
    Slot& slot = this->slot(reduction.bucket, reduction.use);
    if (std::exchange(slot.begun, true)) {
      add(context, part, slot.sum);
    } else {
      copy(context, part, slot.sum);
    }
  }
  running_.clear();
}

// A tied weight's gradient is the sum of its uses: on this rank the first one, then on the first
// and the last stage. The last stage's uses are the later ones; they are added to each other first,
// so that the order is the same where one rank has all.
void GradientReduction::add_uses(Context& context, std::size_t index) {
  const auto of = [&](int use) {
    const Slot& from = slot(index, use);
    return adds_uses_first(bucket(index)) ? from.full : from.sum;
  };
  for (int use = bucket(index).layout.uses() - 1; use > 0; --use) {
    add(context, of(use), of(use - 1));
  }
  if (topology_.embedding.defined() && topology_.embedding.size() > 1) {
    const Parameter& table = *bucket(index).layout.entries.front().parameter;
    topology_.embedding.all_reduce(
        context, adds_uses_first(bucket(index)) ? table.gradient(0) : slot(index, 0).sum);
  }
}

void GradientReduction::finish(Context& context) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    for (const Slot& slot : slots_[i]) {
      const auto all = static_cast<int>(bucket(i).layout.entries.size());
      if (slot.missing == (options_.each_round ? all : 0)) continue;
      throw Error("GradientReduction: " + std::to_string(slot.missing) + " of " +
                  std::to_string(all) + " gradients of bucket " + std::to_string(i) +
                  " are not ready, first " + bucket(i).layout.entries.front().parameter->name());
    }
  }
  reduce_postponed(context);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!adds_uses_first(bucket(i))) continue;
    add_uses(context, i);
    for (std::size_t use = 1; transient(bucket(i)) && use < slots_[i].size(); ++use) {
      slots_[i][use].full = Tensor();
      bind(bucket(i), static_cast<int>(use), {});
    }
    reduce(context, i, 0);
  }
  collect(context);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (bucket(i).layout.tied() && !adds_uses_first(bucket(i))) add_uses(context, i);
    sum_partial(context, bucket(i));
  }
}

void GradientReduction::sum_partial(Context& context, const Bucket& of) {
  for (const auto& [group, begin, count] : partial_sums(of.layout, of.begin, of.count)) {
    topology_.of(group).all_reduce(context, of.gradient.flat(begin - of.begin, count));
  }
}

}  // namespace trident

// Operations of a group whose other members do not exist: on a planning device, or on a planning
// transport (parallel/transport/planning.h). They exchange nothing.
#pragma once

#include "core/context.h"
#include "core/operation_trace.h"
#include "kernels/backend.h"
#include "parallel/collectives/exchange.h"
#include "parallel/collectives/volume.h"
#include "parallel/process_group.h"
#include "parallel/process_group_impl.h"

namespace trident {

inline bool has_no_peers(const Context& context, const Membership& group) {
  return context.is_planning() || !group.endpoint->exchanges();
}

// Records an operation in the context's trace, if it has one. `counts`: of an all_to_all_v.
inline void trace(Context& context, const Membership& group, const Descriptor& d, Async async,
                  const CountsTable* counts = nullptr) {
  OperationTrace* const trace = context.trace();
  if (trace == nullptr) return;
  const auto size = static_cast<int>(group.members.size());
  const std::int64_t count = counts == nullptr ? d.count : counts->input(group.rank);
  const std::int64_t sent = counts == nullptr
                                ? bytes_sent(d, size, group.rank, group.more_collectives())
                                : (count - counts->sent(group.rank, group.rank)) *
                                      static_cast<std::int64_t>(size_of(d.dtype));
  trace->add({.name = name_of(d.operation),
              .shape = {count},
              .dtype = d.dtype,
              .group = trace->number_of(group.name, size, group.rank),
              .operation = static_cast<std::uint8_t>(d.operation),
              .algorithm = static_cast<std::uint8_t>(d.algorithm),
              .root = d.root,
              .bytes_sent = sent,
              .asynchronous = async == Async::yes});
}

// The work of an operation that trace() has just noted. It holds the staging memory that the
// operation would use.
struct PlannedWork final : Work::Impl {
  explicit PlannedWork(Tensor tensor) : staging(std::move(tensor)) {}
  void wait(const Access&) override { staging = Tensor(); }
  bool done() const override { return true; }
  Tensor staging;
};
inline Work planned_work(Context& context, Async async, const Tensor& staging = {}) {
  auto work = std::make_shared<PlannedWork>(staging);
  if (const OperationTrace* const trace = context.trace();
      trace != nullptr && async == Async::yes) {
    work->trace = trace;
    work->traced = trace->operations().size() - 1;
  }
  return Work(std::move(work));
}

// Fills a tensor that other ranks would have sent with the values of small weights, or with zeros
// where it holds integers or f64. Does nothing on a planning device.
inline void fill_placeholder(Context& context, const Tensor& tensor) {
  if (context.is_planning() || !tensor || tensor.numel() == 0) return;
  const auto fill_normal = backend_of(context).fill_normal;
  const auto fill = backend_of(context).fill;
  const bool numbers = is_floating(tensor.dtype()) && tensor.dtype() != DType::f64;
  const NormalArgs normal{
      .x = tensor.flat(0, tensor.numel()), .global_rows = 1, .global_columns = tensor.numel()};
  context.stream().enqueue([=, &context](const Access& access) {
    if (numbers) {
      fill_normal(access, context, normal);
    } else {
      fill(access, context, normal.x, 0.0);
    }
  });
}

}  // namespace trident

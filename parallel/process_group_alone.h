// What a group does where nobody else is there: on a planning device, or by a planning transport.
#pragma once

#include "core/context.h"
#include "core/operation_trace.h"
#include "kernels/backend.h"
#include "parallel/collectives/exchange.h"
#include "parallel/collectives/volume.h"
#include "parallel/process_group.h"

namespace trident {

inline bool is_alone(const Context& context, const Membership& group) {
  return context.is_planning() || !group.endpoint->exchanges();
}

// Enters an operation into the context's trace.
inline void trace(Context& context, const Membership& group, const Descriptor& d, Async async) {
  OperationTrace* const trace = context.trace();
  if (trace == nullptr) return;
  const auto size = static_cast<int>(group.members.size());
  trace->add({.name = name_of(d.operation),
              .shape = {d.count},
              .dtype = d.dtype,
              .group = trace->number_of(group.name, size, group.rank),
              .operation = static_cast<std::uint8_t>(d.operation),
              .algorithm = static_cast<std::uint8_t>(d.algorithm),
              .root = d.root,
              .bytes_sent = bytes_sent(d, size, group.rank, group.more_collectives()),
              .beside = async == Async::yes});
}

// Gives a tensor that others would have sent the values of small weights, or zeros where it holds
// integers. Nothing on a planning device.
inline void make_up(Context& context, const Tensor& tensor) {
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

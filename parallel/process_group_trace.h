// Enters an operation of a group into the trace of a planning device.
#pragma once

#include "core/context.h"
#include "core/operation_trace.h"
#include "parallel/collectives/exchange.h"
#include "parallel/collectives/volume.h"
#include "parallel/process_group.h"

namespace trident {

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

}  // namespace trident

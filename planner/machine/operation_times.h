// Predicts the time of an operation of a traced step on a machine (planner/machine/machine.h). The
// functions have no state; any thread may call them. product_seconds() and kernel_seconds() throw
// RequestError where the machine has no rate for the type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/operation_trace.h"
#include "parallel/collectives/descriptor.h"
#include "planner/machine/machine.h"

namespace trident {

// Returns the seconds of `batch` products of m × n × k; `form` is "nn", "nt" or "tn". Where
// products were measured, the prediction comes from the nearest ones in shape. Otherwise the
// device's units compute tiles of the result in rounds, with the fastest of the tile sizes of
// cuBLAS and CUTLASS: smaller tiles read their operands more often, and each tile has a start-up
// cost. This time is never less than the time to move the product's bytes.
double product_seconds(const Machine&, DType, std::int64_t m, std::int64_t n, std::int64_t k,
                       std::int64_t batch = 1, std::string_view form = "nn");
// Returns the seconds of a kernel that is bound by memory bandwidth.
double memory_seconds(const Machine&, double bytes);
// Returns the name of the operation's entry in Machine::Device::kernels.
std::string measured_name(const TracedOperation&);
// Returns the seconds of a kernel of the trace; 0 for a collective or a message.
double kernel_seconds(const Machine&, const TracedOperation&);

// How the members of a group are spread over nodes.
struct GroupShape {
  std::int64_t members = 1;
  std::int64_t members_per_node = 1;
  std::int64_t nodes() const { return (members + members_per_node - 1) / members_per_node; }
};

// Returns the seconds of a collective over `bytes`, the full tensor that is reduced or gathered, by
// ring or tree, whichever is faster (Thakur et al. 2005; NCCL chooses so). A ring goes through each
// node once. Groups that cross the same nodes share the nodes' links: a group gets the same share
// of a node's link as of its devices.
double collective_seconds(const Machine&, Operation, double bytes, const GroupShape&);
// Returns the seconds of a message. If the receiver is on another node, all devices of the sender's
// node send at the same time.
double message_seconds(const Machine&, double bytes, bool same_node);

}  // namespace trident

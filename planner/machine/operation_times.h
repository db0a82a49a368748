// How long an operation of a traced step takes on a machine (planner/machine/machine.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/operation_trace.h"
#include "parallel/collectives/descriptor.h"
#include "planner/machine/machine.h"

namespace trident {

// Seconds of `batch` products of m × n × k; `form`: "nn", "nt" or "tn". Where products were
// measured, by the nearest of them in shape. Else tiles of the result are dealt to the device's
// units in rounds, of the sizes that cuBLAS and CUTLASS have the one that ends first: smaller ones
// read their operands more often, and each takes a while to begin and end. Never under the time
// that its bytes take.
double product_seconds(const Machine&, DType, std::int64_t m, std::int64_t n, std::int64_t k,
                       std::int64_t batch = 1, std::string_view form = "nn");
// Of a kernel that is bound by what it reads and writes.
double memory_seconds(const Machine&, double bytes);
// The name under which a machine has a kernel that was measured.
std::string measured_name(const TracedOperation&);
// Of a kernel of the trace; 0 for what groups do.
double kernel_seconds(const Machine&, const TracedOperation&);

// Where the members of a group are.
struct GroupShape {
  std::int64_t members = 1;
  std::int64_t members_per_node = 1;
  std::int64_t nodes() const { return (members + members_per_node - 1) / members_per_node; }
};

// Seconds of a collective over `bytes`, the whole tensor that is reduced or gathered, by ring or
// tree, whichever ends first (Thakur et al. 2005; NCCL chooses so). A ring goes through each node
// once. Groups that cross the same nodes share their links: a group has the part of a node's
// link that it has of its devices.
double collective_seconds(const Machine&, Operation, double bytes, const GroupShape&);
// Of a message to a device of the same node, or of another one while all devices of this one send.
double message_seconds(const Machine&, double bytes, bool same_node);

}  // namespace trident

// The collectives of processes that share a host's memory. Each process copies as much of its
// buffers as fits into its shared-memory slot (parallel/transport/shared_rendezvous.h), and reads
// the slots of the others. No system call moves data, and no large message waits until a process
// progresses its fragments. The results are bitwise identical to direct's, and the counted volume
// is the same.
#pragma once

#include "parallel/collectives/collective.h"
#include "parallel/collectives/exchange.h"

namespace trident::slots {

void all_reduce(Exchange& exchange, const Buffers& buffers);
void reduce_scatter(Exchange& exchange, const Buffers& buffers);
void reduce(Exchange& exchange, const Buffers& buffers);
void all_gather(Exchange& exchange, const Buffers& buffers);
void broadcast(Exchange& exchange, const Buffers& buffers);
void gather(Exchange& exchange, const Buffers& buffers);
void scatter(Exchange& exchange, const Buffers& buffers);
void all_to_all(Exchange& exchange, const Buffers& buffers);
void all_to_all_v(Exchange& exchange, const Buffers& buffers);
void barrier(Exchange& exchange, const Buffers& buffers);

}  // namespace trident::slots

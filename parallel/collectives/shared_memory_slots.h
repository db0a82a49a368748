// The collectives of processes that share a host's memory: each shows the others parts of its
// buffers on its desk (transport/meeting.h), as much as fits, and reads theirs. No system call
// moves data, and no large message waits for somebody to progress its fragments. Results are equal
// to direct's to the bit, and so is the counted volume.
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
void barrier(Exchange& exchange, const Buffers& buffers);

}  // namespace trident::slots

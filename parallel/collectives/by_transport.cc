#include "parallel/collectives/by_transport.h"

#include "kernels/reduce.h"
#include "parallel/collectives/direct.h"
#include "parallel/collectives/volume.h"

namespace trident::by_transport {

void all_reduce(Exchange& exchange, const Buffers& buffers) {
  const Descriptor& d = exchange.descriptor();
  exchange.compare();
  if (!exchange.reductions_opened()) {
    direct::barrier(exchange, {});  // MPI opens reductions without a time limit
    exchange.open_reductions();
  }
  exchange.count_sent(static_cast<std::size_t>(bytes_sent(d, exchange.size(), exchange.rank())));
  Exchange::Transfer reduction = exchange.reduce_by_transport(buffers.output, buffers.n);
  exchange.wait(reduction);
  if (d.reduce_op == ReduceOp::average) {
    reduce_end(buffers.output, buffers.output, buffers.n, d.dtype, d.reduce_op, exchange.size());
  }
}

}  // namespace trident::by_transport

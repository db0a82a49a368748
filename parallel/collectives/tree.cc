#include "parallel/collectives/tree.h"

#include <vector>

#include "kernels/reduce.h"

namespace trident::tree {

std::int64_t all_reduce_staging(const CollectiveCase& c) {
  return c.views_need_staging ? c.n : 0;
}

std::int64_t all_reduce_sent(const CollectiveCase& c) {
  int links = c.rank == 0 ? 0 : 1;  // the parent; children lie below the lowest set bit
  for (int below = 1; c.rank + below < c.members && (c.rank & below) == 0; below *= 2) ++links;
  return links * c.n;
}

void all_reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  if (exchange.rendezvous() != nullptr) exchange.arrive_without_buffers();
  const Descriptor& d = exchange.descriptor();
  const std::size_t bytes = static_cast<std::size_t>(n) * size_of(d.dtype);
  const int size = exchange.size(), self = exchange.rank();
  exchange.announce();

  // The lowest set bit of a member's rank leads to its parent; its children lie below that bit.
  int reach = 1;
  for (; reach < size && (self & reach) == 0; reach *= 2) {
    const int child = self + reach;
    if (child >= size) continue;
    Exchange::Transfer part = exchange.receive_view(child, staging, bytes);
    exchange.wait(part);
    const void* sources[] = {data, part.request->view()};
    reduce(data, sources, n, d.dtype, d.reduce_op, self == 0 && reach * 2 >= size ? size : 1);
  }
  if (self != 0) {
    const int parent = self - reach;
    Exchange::Transfer sent = exchange.send(parent, data, bytes);
    exchange.wait(sent);  // before its buffer receives the result
    Exchange::Transfer result = exchange.receive(parent, data, bytes);
    exchange.wait(result);
  }
  std::vector<Exchange::Transfer> sends;
  for (int below = reach / 2; below > 0; below /= 2) {
    if (self + below < size) sends.push_back(exchange.send(self + below, data, bytes));
  }
  exchange.wait(sends);
}

}  // namespace trident::tree

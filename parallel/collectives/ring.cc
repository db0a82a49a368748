#include "parallel/collectives/ring.h"

#include "kernels/reduce.h"

namespace trident::ring {

std::int64_t all_reduce_staging(const CollectiveCase& c) {
  return c.views_need_staging ? (c.n + c.members - 1) / c.members : 0;
}

std::int64_t all_reduce_sent(const CollectiveCase& c) {
  const auto segment = [&](int i) { return segment_of(c.n, c.members, i % c.members).size(); };
  return 2 * c.n - segment(c.rank + 1) - segment(c.rank + 2);
}

void all_reduce(Exchange& exchange, const Buffers& buffers) {
  const auto [input, data, n, staging] = buffers;
  if (exchange.rendezvous() != nullptr) exchange.arrive_without_buffers();
  const Descriptor& d = exchange.descriptor();
  const int size = exchange.size(), self = exchange.rank();
  const int next = (self + 1) % size, previous = (self + size - 1) % size;
  const auto wrapped = [&](int i) { return (i % size + size) % size; };
  const auto at = [&](int i) {
    return data + static_cast<std::size_t>(segment_of(n, size, i).begin) * size_of(d.dtype);
  };
  const auto bytes = [&](int i) {
    return static_cast<std::size_t>(segment_of(n, size, i).size()) * size_of(d.dtype);
  };

  for (int step = 0; step < size - 1; ++step) {
    const int out = wrapped(self - step), in = wrapped(self - step - 1);
    Exchange::Transfer part = exchange.receive_view(previous, staging, bytes(in));
    Exchange::Transfer sent = exchange.send(next, at(out), bytes(out));
    exchange.wait(part);
    // The lower rank's operand comes first, so that the result of two ranks is bitwise identical to
    // `direct`'s.
    const void* sources[] = {at(in), part.request->view()};
    if (previous < self) std::swap(sources[0], sources[1]);
    reduce(at(in), sources, segment_of(n, size, in).size(), d.dtype, d.reduce_op,
           step == size - 2 ? size : 1);
    part.request.reset();
    exchange.wait(sent);
  }
  for (int step = 0; step < size - 1; ++step) {
    const int out = wrapped(self + 1 - step), in = wrapped(self - step);
    Exchange::Transfer transfers[] = {exchange.receive(previous, at(in), bytes(in)),
                                      exchange.send(next, at(out), bytes(out))};
    exchange.wait(transfers);
  }
}

}  // namespace trident::ring

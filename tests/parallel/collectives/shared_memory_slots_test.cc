// Compares collectives of processes that share a host's memory, in many chunks, with the same
// collectives by messages. The conformance suite has the small sizes. A part of
// parallel_collectives_mpi_test.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/context.h"
#include "parallel/process_group.h"
#include "parallel/transport/transport.h"

namespace trident {
namespace {

// Longer than all slots together, and no round number.
constexpr std::int64_t count = (3 << 20) / 2 + 7;

template <class T>
Tensor random(Context& context, int rank, std::int64_t n) {
  std::mt19937 generator(static_cast<unsigned>(17 + rank));
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& value : values) value = T(static_cast<float>(generator() % 2001) * 1.7e-3f - 1.7f);
  return context.from_host<T>({n}, values, Category::workspace);
}

// Runs an operation on an input and an output, and returns the tensor with its result on this rank.
using Run =
    std::function<Tensor(Context&, const ProcessGroup&, const Tensor& input, Tensor output)>;

template <class T>
void expect_equal(const std::string& what, std::int64_t inputs, std::int64_t outputs,
                  const Run& run) {
  const auto device = make_cpu_device();
  Context context(*device, 1);
  const auto slots = make_mpi_transport({.single_copy = false});
  const auto fetched = make_mpi_transport({});
  // Each rank has a node of its own, so no two ranks share memory.
  const auto messages = make_mpi_transport({.ranks_per_node = 1});
  std::vector<std::vector<T>> results;
  std::vector<std::int64_t> sent;
  for (Transport* const transport : {slots.get(), fetched.get(), messages.get()}) {
    const ProcessGroup world = transport->world();
    const Tensor input = random<T>(context, world.rank(), inputs);
    const Tensor output = random<T>(context, world.rank() + 100, outputs);
    results.push_back(context.to_host<T>(run(context, world, input, output)));
    sent.push_back(world.traffic().bytes_sent);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(results[i].size(), results[2].size());
    EXPECT_EQ(std::memcmp(results[i].data(), results[2].data(), results[i].size() * sizeof(T)), 0)
        << what;
    EXPECT_EQ(sent[i], sent[2]) << what;
  }
}

template <class T>
void expect_equal_reductions() {
  const int size = make_mpi_transport({})->world().size();
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average}) {
    expect_equal<T>("all_reduce", count, 1,
                    [op](Context& c, const ProcessGroup& g, const Tensor& in, const Tensor&) {
                      g.all_reduce(c, in, op, Async::no, Algorithm::direct);
                      return in;
                    });
    expect_equal<T>("reduce_scatter", count * size, count,
                    [op](Context& c, const ProcessGroup& g, const Tensor& in, const Tensor& out) {
                      g.reduce_scatter(c, in, out, op);
                      return out;
                    });
    expect_equal<T>("reduce", count, 1,
                    [op](Context& c, const ProcessGroup& g, const Tensor& in, const Tensor&) {
                      g.reduce(c, in, 1 % g.size(), op);
                      return in;
                    });
  }
}

TEST(Slots, ReduceWordsBitwiseAsMessagesDo) {
  expect_equal_reductions<float>();
}
TEST(Slots, ReduceHalfWordsBitwiseAsMessagesDo) {
  expect_equal_reductions<BFloat16>();
}

TEST(Slots, MoveTheValuesThatMessagesMove) {
  const int size = make_mpi_transport({})->world().size();
  const int root = size - 1;
  using Half = BFloat16;
  expect_equal<Half>("all_gather", count, count * size,
                     [](Context& c, const ProcessGroup& g, const Tensor& in, const Tensor& out) {
                       g.all_gather(c, in, out);
                       return out;
                     });
  expect_equal<Half>("broadcast", count, 1,
                     [=](Context& c, const ProcessGroup& g, const Tensor& in, const Tensor&) {
                       g.broadcast(c, in, root);
                       return in;
                     });
  expect_equal<Half>("gather", count, count * size,
                     [=](Context& c, const ProcessGroup& g, const Tensor& in, const Tensor& out) {
                       g.gather(c, in, out, root);
                       return out;
                     });
  expect_equal<Half>("scatter", count * size, count,
                     [=](Context& c, const ProcessGroup& g, const Tensor& in, const Tensor& out) {
                       g.scatter(c, in, out, root);
                       return out;
                     });
  expect_equal<Half>("all_to_all", count * size, count * size,
                     [](Context& c, const ProcessGroup& g, const Tensor& in, const Tensor& out) {
                       g.all_to_all(c, in, out);
                       return out;
                     });
  expect_equal<Half>("all_to_all_v", count * size, count * size,
                     [=](Context& c, const ProcessGroup& g, const Tensor& in, const Tensor& out) {
                       // Rank r sends much to the rank after it and little to the others.
                       const std::int64_t little = count / 3;
                       std::vector<std::int64_t> counts(static_cast<std::size_t>(size * size),
                                                        little);
                       for (int r = 0; r < size; ++r) {
                         counts[static_cast<std::size_t>(r * size + (r + 1) % size)] =
                             count * size - little * (size - 1);
                       }
                       g.all_to_all_v(c, in, out, counts);
                       return out;
                     });
}

// Slots must be written again only when no rank reads them any more. The test runs operations of
// all sizes in a row, concurrently with asynchronous ones of another group of the same ranks.
void expect_operations_stay_apart(int ranks_per_node) {
  const auto device = make_cpu_device();
  Context context(*device, 1);
  const auto transport = make_mpi_transport({.ranks_per_node = ranks_per_node});
  const ProcessGroup world = transport->world(), other = world.duplicate("concurrent");
  const int size = world.size();
  for (int round = 0; round < 30; ++round) {
    const std::int64_t n = std::int64_t{1} << (round % 20);
    const std::vector<float> own(static_cast<std::size_t>(n),
                                 static_cast<float>(world.rank() + round));
    const Tensor a = context.from_host<float>({n}, own, Category::workspace);
    const Tensor b = context.from_host<float>({n}, own, Category::workspace);
    const Work concurrent = other.all_reduce(context, a, ReduceOp::sum, Async::yes);
    world.all_reduce(context, b);
    if (round % 3 == 0) world.barrier(context);
    concurrent.wait(context);
    const int sum = size * (size - 1) / 2 + size * round;
    const std::vector<float> want(static_cast<std::size_t>(n), static_cast<float>(sum));
    EXPECT_EQ(context.to_host<float>(a), want) << round;
    EXPECT_EQ(context.to_host<float>(b), want) << round;
  }
}
TEST(Slots, ConsecutiveAndConcurrentOperationsStayApart) {
  expect_operations_stay_apart(0);
}
TEST(Carried, ConsecutiveAndConcurrentOperationsStayApart) {
  expect_operations_stay_apart(2);
}

}  // namespace
}  // namespace trident

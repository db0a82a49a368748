// Compares an all-reduce over several hosts with several members each, played by nodes on one host,
// with the same all-reduce by messages alone. A part of parallel_collectives_mpi_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <random>
#include <vector>

#include "core/context.h"
#include "parallel/process_group.h"
#include "parallel/transport/transport.h"

namespace trident {
namespace {

template <class T>
std::vector<T> values(int rank, std::int64_t n) {
  std::mt19937 generator(static_cast<unsigned>(29 + rank));
  std::vector<T> all(static_cast<std::size_t>(n));
  for (T& value : all) {
    value = static_cast<T>(static_cast<float>(generator() % 2001) * 1.7e-3f - 1.7f);
  }
  return all;
}

struct Outcome {
  std::vector<std::byte> bits;
  std::int64_t sent = 0;
  bool operator==(const Outcome&) const = default;
};

// The result and traffic of all_reduce in group `members`, with `ranks_per_node` ranks a node. It
// runs twice, since the first operation of a group opens the shared memory that later ones use.
template <class T>
Outcome reduced(int ranks_per_node, const std::vector<int>& members, std::int64_t n, ReduceOp op) {
  const auto device = make_cpu_device();
  Context context(*device, 1);
  const auto transport = make_mpi_transport({.ranks_per_node = ranks_per_node});
  const ProcessGroup world = transport->world();
  Outcome outcome;
  if (std::find(members.begin(), members.end(), world.rank()) != members.end()) {
    const ProcessGroup group = world.subgroup(members, "some");
    for (int times = 0; times < 2; ++times) {
      const auto own = values<T>(world.rank() + times, n);
      const Tensor tensor = context.from_host<T>({n}, own, Category::workspace);
      group.all_reduce(context, tensor, op, Async::no, Algorithm::direct);
      const auto result = context.to_host<T>(tensor);
      const auto* const bytes = reinterpret_cast<const std::byte*>(result.data());
      outcome.bits.insert(outcome.bits.end(), bytes, bytes + n * sizeof(T));
    }
    outcome.sent = group.traffic().bytes_sent;
  }
  world.barrier(context);
  return outcome;
}

template <class T>
void expect_bits_of_messages(const std::vector<int>& members,
                             std::initializer_list<ReduceOp> operations) {
  // The sizes go from the smallest that is carried, over odd numbers, to more than all slots hold.
  for (const std::int64_t n : {270'000, 530'003, 1'500'017}) {
    for (const ReduceOp op : operations) {
      const Outcome apart = reduced<T>(1, members, n, op);
      for (const int ranks_per_node : {2, 3}) {
        EXPECT_EQ(reduced<T>(ranks_per_node, members, n, op), apart)
            << n << " elements, " << ranks_per_node << " ranks a node";
      }
    }
  }
}

int world_size() {
  return make_mpi_transport({})->world().size();
}

std::vector<int> all_ranks() {
  std::vector<int> ranks(static_cast<std::size_t>(world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST(Carried, SumsOfWordsAreThoseOfMessages) {
  expect_bits_of_messages<float>(all_ranks(), {ReduceOp::sum});
}
TEST(Carried, MeansOfHalfWordsAreThoseOfMessages) {
  expect_bits_of_messages<BFloat16>(all_ranks(), {ReduceOp::average});
}
TEST(Carried, MaximaOfIntegersAreThoseOfMessages) {
  expect_bits_of_messages<std::int64_t>(all_ranks(), {ReduceOp::maximum});
}
// The nodes come in another order, and one node has fewer of the members.
TEST(Carried, GroupsOfSomeRanksInAnyOrderGiveTheValuesOfMessages) {
  if (world_size() < 4) GTEST_SKIP() << "needs 4 ranks";
  expect_bits_of_messages<float>({3, 2, 1}, {ReduceOp::sum});
  expect_bits_of_messages<BFloat16>({2, 3, 0, 1}, {ReduceOp::sum});
  expect_bits_of_messages<float>({0, 2, 1, 3}, {ReduceOp::sum});  // no neighbours: messages
}

// The values are whole numbers, whose sums don't depend on the order.
TEST(ByTransport, SumsAndMeansAreThoseOfDirect) {
  const auto device = make_cpu_device();
  Context context(*device, 1);
  const auto transport = make_mpi_transport({.deterministic = false, .ranks_per_node = 1});
  const ProcessGroup world = transport->world();
  const int size = world.size();
  const auto check = [&]<class T>(T, ReduceOp op, std::int64_t n) {
    std::vector<T> own, want;
    for (std::int64_t i = 0; i < n; ++i) {
      own.push_back(static_cast<T>(static_cast<float>(world.rank() + i % 7)));
      const std::int64_t exact = size * (size - 1) / 2 + size * (i % 7);
      const auto sum = static_cast<float>(exact);
      want.push_back(
          static_cast<T>(op == ReduceOp::average ? sum / static_cast<float>(size) : sum));
    }
    const Tensor tensor = context.from_host<T>({n}, own, Category::workspace);
    const std::int64_t sent = world.traffic().bytes_sent;
    world.all_reduce(context, tensor, op);
    const std::vector<T> got = context.to_host<T>(tensor);
    EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(T)), 0) << n;
    const std::int64_t segment = n * (world.rank() + 1) / size - n * world.rank() / size;
    EXPECT_EQ(world.traffic().bytes_sent - sent,
              static_cast<std::int64_t>(sizeof(T)) * (n + segment * (size - 2)));
  };
  for (const std::int64_t n : {1, 1000, 65'537}) {
    check(float{}, ReduceOp::sum, n);
    check(float{}, ReduceOp::average, n);
    check(double{}, ReduceOp::sum, n);
    check(std::int64_t{}, ReduceOp::sum, n);
    check(BFloat16{}, ReduceOp::average, n);  // a type that MPI doesn't have
  }
}

}  // namespace
}  // namespace trident

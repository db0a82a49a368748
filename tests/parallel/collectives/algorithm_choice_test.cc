#include "parallel/collectives/algorithm_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/context.h"
#include "parallel/collectives/algorithm_registry.h"
#include "parallel/collectives/communicator.h"
#include "parallel/collectives/direct.h"
#include "parallel/transport/planning.h"
#include "parallel/transport/transport_registry.h"
#include "support/abort_on_unwind.h"

namespace trident {
namespace {

constexpr std::int64_t small = 1 << 14, large = 1 << 24;  // elements of 4 bytes

const Collective& chosen(const CollectiveCase& c) {
  return choose(c, {}, [] { return std::string("here"); });
}
std::string_view name(Sharing sharing, int members, std::int64_t n) {
  return chosen({.sharing = sharing, .members = members, .n = n}).name;
}

TEST(Table, MembersThatShareMemoryUseIt) {
  for (const int members : {2, 3, 8, 64}) {
    for (const std::int64_t count : {std::int64_t{1}, small, large}) {
      EXPECT_EQ(name(Sharing::tensors, members, count), "shared");
    }
  }
}

TEST(Table, ProcessesOfAHostUseTheirSlots) {
  for (const int members : {2, 3, 8, 64}) {
    EXPECT_EQ(name(Sharing::slots, members, large), "slots");
    EXPECT_EQ(name(Sharing::fetches, members, small), "slots");
    EXPECT_EQ(name(Sharing::fetches, members, large), "fetched");
  }
}

TEST(Table, ARingServesTwoProcessesWithLargeMessagesInEqualSegments) {
  EXPECT_EQ(name(Sharing::nothing, 2, small), "swap");
  EXPECT_EQ(name(Sharing::nothing, 2, large), "ring");
  EXPECT_EQ(name(Sharing::nothing, 2, large + 1), "direct");
}

TEST(Table, LargeSumsOverHostsWithNeighboursAreCarried) {
  const auto over_hosts = [](std::int64_t n, bool on_gpu) {
    return chosen({.on_gpu = on_gpu,
                   .views_need_staging = true,
                   .host_runs = true,
                   .members = 4,
                   .n = n})
        .name;
  };
  EXPECT_EQ(over_hosts(large, false), "carried");
  EXPECT_EQ(over_hosts(1, false), "direct");
  EXPECT_EQ(over_hosts(large, true), "direct");
}

TEST(Table, TheTransportsOwnServesManyMembersWithSmallSumsInAnyOrder) {
  const auto own = [](int members, std::int64_t n, bool deterministic) {
    return chosen(
               {.by_transport = true, .deterministic = deterministic, .members = members, .n = n})
        .name;
  };
  EXPECT_EQ(own(8, small, false), "by_transport");
  EXPECT_EQ(own(8, small, true), "direct");
  EXPECT_EQ(own(8, large, false), "direct");
  EXPECT_EQ(own(4, small, false), "direct");
}

// There, deterministic mode refuses every algorithm but `direct`.
TEST(Table, AboveTwoMembersNothingDependsOnTheCount) {
  for (const std::int64_t count : {std::int64_t{1}, small, large}) {
    EXPECT_EQ(name(Sharing::nothing, 3, count), "direct");
    EXPECT_EQ(name(Sharing::nothing, 64, count), "direct");
  }
}

TEST(Table, AlgorithmsThatACaseCanNotHaveAreRefused) {
  const auto text = [](const CollectiveCase& c) -> std::string {
    try {
      return std::string(chosen(c).name);
    } catch (const RequestError& e) {
      return e.what();
    }
  };
  EXPECT_EQ(text({.algorithm = Algorithm::tree, .members = 3}),
            "here: the tree algorithm does not add in rank order, which deterministic mode needs "
            "above 2 ranks; use direct");
  EXPECT_EQ(text({.algorithm = Algorithm::tree, .members = 2}), "tree");
  EXPECT_EQ(text({.algorithm = Algorithm::ring, .deterministic = false, .members = 3}), "ring");
  EXPECT_EQ(text({.algorithm = Algorithm::ring, .on_gpu = true}),
            "here: the ring algorithm is the CPU's; on a GPU use direct");
}

// Every operation has an algorithm: by messages, by shared memory or by a library.
TEST(Table, EveryCaseIsServed) {
  std::vector<int> operations{static_cast<int>(Operation::all_to_all_v)};
  for (int i = 0; i <= static_cast<int>(Operation::barrier); ++i) operations.push_back(i);
  for (const int operation : operations) {
    for (const Sharing sharing :
         {Sharing::nothing, Sharing::slots, Sharing::fetches, Sharing::tensors}) {
      for (const bool by_library : {false, true}) {
        const Collective& row = chosen({.operation = static_cast<Operation>(operation),
                                        .sharing = sharing,
                                        .on_gpu = by_library,
                                        .by_library = by_library,
                                        .members = 4});
        EXPECT_EQ(row.operation, static_cast<Operation>(operation));
        EXPECT_EQ(row.algorithm, Algorithm::direct);
      }
    }
  }
}

TEST(Table, NamesAreUnique) {
  std::set<std::string_view> seen;
  std::set<Algorithm> numbers{Algorithm::automatic};
  for (const AlgorithmKind& one : algorithm_registry()) {
    EXPECT_TRUE(seen.insert(one.name).second);
    EXPECT_TRUE(numbers.insert(one.algorithm).second) << one.name;
  }
  seen.clear();
  for (const TransportKind& one : transport_registry()) {
    EXPECT_TRUE(seen.insert(one.name).second);
    EXPECT_TRUE(one.run_threads != nullptr || one.run_process != nullptr) << one.name;
  }
}

// A row that a program adds comes before the built-in rows, for the cases that it takes.
TEST(Table, AProgramAddsAnAlgorithm) {
  static int calls = 0;
  const auto more = std::make_shared<std::vector<Collective>>();
  more->push_back({.operation = Operation::broadcast,
                   .name = "counted",
                   .serves = [](const CollectiveCase& c) { return c.n > 1; },
                   .run =
                       [](Exchange& exchange, const Buffers& buffers) {
                         if (exchange.rank() == 1) ++calls;
                         direct::broadcast(exchange, buffers);
                       }});
  run_local(2, {.more_collectives = more}, [](Transport& transport) {
    const auto device = make_cpu_device();
    Context context(*device, 1);
    const AbortOnUnwind abort(transport);
    const ProcessGroup world = transport.world();
    for (const int count : {1, 3}) {
      const std::vector<float> values(static_cast<std::size_t>(count),
                                      static_cast<float>(world.rank() + 1));
      const Tensor x = context.from_host<float>({count}, values, Category::workspace);
      world.broadcast(context, x, 0);
      EXPECT_EQ(context.to_host<float>(x), std::vector<float>(static_cast<std::size_t>(count), 1));
    }
  });
  EXPECT_EQ(calls, 1);
}

// The library's communicators would carry tensors on GPUs. Each rank's library is made with its
// world.
TEST(Table, AProgramBringsALibraryOfCommunicators) {
  static std::atomic<int> made = 0;
  static constexpr CommunicatorLibraryKind library{
      .make = [](std::shared_ptr<Endpoint>) -> std::shared_ptr<CommunicatorLibrary> {
        ++made;
        return nullptr;
      },
      .reduces = [](ReduceOp, bool) { return true; }};
  run_local(3, {.library = &library}, [](Transport&) {});
  EXPECT_EQ(made, 3);
  make_planning_transport(0, 3, false, {.library = &library});
  EXPECT_EQ(made, 3) << "a plan asks which operations it reduces and makes none";
}

}  // namespace
}  // namespace trident

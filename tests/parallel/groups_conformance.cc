// Tests concurrent groups, the order of their operations, and waiting.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "base/error.h"
#include "parallel/collectives_seat.h"
#include "support/slowly.h"

namespace trident::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

TEST_P(Collectives, SplitAndSubsetsOfAnyOrderReduceInTheirOwnRankOrder) {
  run([](const Seat& s) {
    const int size = s.world.size(), rank = s.world.rank();
    const ProcessGroup parity = s.world.split(rank % 2, -rank, "parity");  // descending
    std::vector<int> wanted;
    for (int r = size - 1; r >= 0; --r) {
      if (r % 2 == rank % 2) wanted.push_back(r);
    }
    EXPECT_EQ(parity.world_ranks(), wanted);
    EXPECT_EQ(wanted[static_cast<std::size_t>(parity.rank())], rank);
    const Tensor x = s.own<float>(333);
    parity.all_reduce(s.context, x);
    s.expect(x, reduced<float>(ReduceOp::sum, wanted, 333), "split");

    if (rank > 0) {  // a subset without rank 0, in rotated order, made twice
      std::vector<int> members;
      for (int i = 0; i < size - 1; ++i) members.push_back(1 + (i + 1) % (size - 1));
      const ProcessGroup first = s.world.subgroup(members, "subset");
      const ProcessGroup second = s.world.subgroup(members, "subset");
      EXPECT_EQ(first.world_ranks(), members);
      const Tensor a = s.own<float>(100), b = s.own<float>(100, 7);
      const Work work = first.all_reduce(s.context, a, ReduceOp::sum, Async::yes);
      second.all_reduce(s.context, b);
      work.wait(s.context);
      s.expect(a, reduced<float>(ReduceOp::sum, members, 100), "subset");
      s.expect(b, reduced<float>(ReduceOp::sum, members, 100, 7), "the same subset again");
      // In a group made from a group, positions are the parent's ranks.
      const int mine[] = {first.rank()};
      EXPECT_EQ(first.subgroup(mine, "self").world_ranks(), std::vector<int>{rank});
    }
  });
}

TEST_P(Collectives, GroupsConnectedAtOnceWorkAsOthers) {
  run([](const Seat& s) {
    const int size = s.world.size(), rank = s.world.rank();
    const auto members_of = [&](auto&& wanted) {
      std::vector<int> members;
      for (int r = size - 1; r >= 0; --r) {
        if (wanted(r)) members.push_back(r);
      }
      return members;
    };
    // These are groups that fill the world, a group without some ranks, each rank's own, and the
    // world again.
    const std::vector<int> parity = members_of([&](int r) { return r % 2 == rank % 2; });
    const std::vector<int> ends = members_of([&](int r) { return r == 0 || r == size - 1; });
    const std::vector<int> own{rank};
    const bool at_end = rank == 0 || rank == size - 1;
    const ProcessGroup groups[] = {
        s.world.subgroup(parity, "parity"),
        at_end ? s.world.subgroup(ends, "ends") : ProcessGroup(),
        s.world.subgroup(own, "own"),
        s.world.duplicate("all"),
    };
    s.world.connect(s.context, groups);
    for (const ProcessGroup& group : groups) {
      if (!group.defined()) continue;
      const Tensor x = s.own<float>(333);
      group.all_reduce(s.context, x);
      s.expect(x, reduced<float>(ReduceOp::sum, group.world_ranks(), 333), group.name());
    }
    // Then a group that was not connected.
    const Tensor x = s.own<float>(50);
    s.world.split(rank / 2, rank, "rows").all_reduce(s.context, x);
    s.expect(
        x,
        reduced<float>(ReduceOp::sum,
                       rank / 2 * 2 + 1 < size ? std::vector<int>{rank / 2 * 2, rank / 2 * 2 + 1}
                                               : std::vector<int>{rank},
                       50),
        "rows");
  });
}

TEST_P(Collectives, GroupsThatOverlapWorkAtTheSameTime) {
  run([](const Seat& s) {
    const int size = s.world.size(), rank = s.world.rank();
    const ProcessGroup rows = s.world.split(rank / 2, rank, "rows");
    const ProcessGroup columns = s.world.split(rank % 2, rank, "columns");
    std::vector<Tensor> kept;
    std::vector<Work> works;
    std::vector<std::vector<float>> wanted;
    for (int round = 0; round < 6; ++round) {
      // Ranks start the two groups' operations in different order.
      for (int i = 0; i < 2; ++i) {
        const ProcessGroup& group = (i + rank) % 2 == 0 ? rows : columns;
        kept.push_back(s.own<float>(5'001, round));
        wanted.push_back(reduced<float>(ReduceOp::sum, group.world_ranks(), 5'001, round));
        works.push_back(group.all_reduce(s.context, kept.back(), ReduceOp::sum, Async::yes));
      }
      const Tensor x = s.own<float>(11);
      s.world.all_reduce(s.context, x);
      s.expect(x, reduced<float>(ReduceOp::sum, iota(size), 11), "a group of all ranks");
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i].wait(s.context);
      s.expect(kept[i], wanted[i], "overlapping groups");
    }
    EXPECT_TRUE(works[0].done());
  });
}

TEST_P(Collectives, BlockingAndAsynchronousOperationsKeepTheirOrder) {
  run([](const Seat& s) {
    const Tensor x = s.tensor<std::int64_t>({1});
    const Tensor other = s.own<float>(20'000);
    const Work slow = s.world.all_reduce(s.context, other, ReduceOp::sum, Async::yes);
    const Work first = s.world.all_reduce(s.context, x, ReduceOp::sum, Async::yes);
    s.world.all_reduce(s.context, x, ReduceOp::product);  // queues behind the earlier operations
    const std::int64_t n = s.world.size();
    std::int64_t power = 1;
    for (int i = 0; i < n; ++i) power *= n;
    s.expect<std::int64_t>(x, {power}, "sum, then product");
    first.wait(s.context);
    slow.wait(s.context);
  });
}

TEST_P(Collectives, AsynchronousCollectivesProgressWhileTheRankIsBusy) {
  run([](const Seat& s) {
    const Tensor x = s.own<float>(100'000);
    const Work work = s.world.all_reduce(s.context, x, ReduceOp::sum, Async::yes);
    for (int i = 0; i < 5000 && !work.done(); ++i) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(work.done());
    work.wait(s.context);
  });
}

TEST_P(Collectives, MessagesOfAnySizeArriveInOrderPerChannel) {
  run([](const Seat& s) {
    const int size = s.world.size(), rank = s.world.rank();
    if (size == 1) return;
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    const std::int64_t sizes[] = {0, 5, 3'000, 100'003};
    std::vector<Tensor> received;
    std::vector<Work> works;
    for (const int channel : {0, 7}) {
      for (const std::int64_t n : sizes) {
        received.push_back(s.empty(n));
        works.push_back(s.world.receive(s.context, received.back(), previous, Async::yes, channel));
      }
    }
    for (const int channel : {7, 0}) {  // the channels cross
      for (const std::int64_t n : sizes) {
        // A send arrives although no rank waits for its Work. Its tensor may be freed at once.
        s.world.send(s.context, s.own<float>(n, channel), next, Async::yes, channel);
      }
    }
    std::size_t i = 0;
    for (const int channel : {0, 7}) {
      for (const std::int64_t n : sizes) {
        works[i].wait(s.context);
        s.expect(received[i], values_of<float>(previous, n, channel), "message");
        EXPECT_TRUE(works[i++].done());
      }
    }
  });
}

TEST_P(Collectives, BlockingSendsIntoPostedReceivesDoNotDeadlock) {
  run([](const Seat& s) {
    const int size = s.world.size(), rank = s.world.rank(), peer = rank ^ 1;
    if (peer >= size) return;
    const std::int64_t n = 200'000;
    const Tensor in = s.empty(n);
    const Work work = s.world.receive(s.context, in, peer, Async::yes, 3);
    s.world.send(s.context, s.own<float>(n), peer, Async::no, 3);
    work.wait(s.context);
    s.expect(in, values_of<float>(peer, n), "exchange");
    s.world.receive(s.context, in, peer, Async::yes);  // dropped: cancelled without harm
    s.context.synchronize();
  });
}

TEST_P(Collectives, AReceiveWithoutAWaitOutlivesItsSender) {
  run([](const Seat& s) {
    if (s.world.rank() != 0 || s.world.size() == 1) return;
    const Tensor in = s.empty(1000);
    Work work = s.world.receive(s.context, in, 1, Async::yes);
    std::this_thread::sleep_for(milliseconds(50));  // rank 1 ends
    EXPECT_FALSE(work.done());
    work = Work();
    s.context.synchronize();
  });
}

TEST_P(Collectives, InjectedLatencyDelaysEveryMessageOnceAndNoSender) {
  TransportOptions options;
  const milliseconds latency = slowly(200);
  options.injected_latency = latency;
  run(
      [&](const Seat& s) {
        const int size = s.world.size(), rank = s.world.rank(), peer = rank ^ 1;
        const ProcessGroup pair = s.world.split(rank / 2, rank, "pair");
        if (peer >= size) return;
        std::vector<Tensor> in, out;
        std::vector<Work> receives, sends;
        for (int i = 0; i < 10; ++i) {
          out.push_back(s.own<float>(20'000, i));
          in.push_back(s.empty(20'000));
          receives.push_back(s.world.receive(s.context, in.back(), peer, Async::yes));
        }
        const auto start = Clock::now();  // before the peer sends
        pair.barrier(s.context);
        const auto sending = Clock::now();
        for (const Tensor& x : out) sends.push_back(s.world.send(s.context, x, peer, Async::yes));
        EXPECT_LT(Clock::now() - sending, latency) << "sends waited";
        for (const Work& receive : receives) receive.wait(s.context);
        s.context.synchronize();
        const auto taken = Clock::now() - start;
        EXPECT_GE(taken, latency);
        EXPECT_LT(taken, 5 * latency) << "messages queued behind each other";
        for (int i = 0; i < 10; ++i) {
          s.expect(in[static_cast<std::size_t>(i)], values_of<float>(peer, 20'000, i), "late");
        }
        for (const Work& send : sends) send.wait(s.context);
      },
      options);
}

TEST_P(Collectives, NoRankLeavesABarrierBeforeAllHaveCome) {
  run([](const Seat& s) {
    const auto now = [] { return Clock::now().time_since_epoch().count(); };
    std::this_thread::sleep_for(milliseconds(7) * s.world.rank());
    const std::int64_t came = now();
    s.world.barrier(s.context);
    const Tensor left = s.tensor<std::int64_t>({now()}), last = s.tensor<std::int64_t>({came});
    s.world.all_reduce(s.context, left, ReduceOp::minimum);
    s.world.all_reduce(s.context, last, ReduceOp::maximum);
    EXPECT_GE(s.context.to_host<std::int64_t>(left)[0], s.context.to_host<std::int64_t>(last)[0]);
  });
}

// A rank that polls takes its part of every 400 ms. A rank that sleeps is only disturbed now and
// then by other work of the machine.
TEST_P(Collectives, AWaitingRankLeavesItsCoreToOthers) {
  run([](const Seat& s) {
    if (!s.on_host()) return;  // its clock is not the thread's
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int attempt = 0; attempt < 3; ++attempt) {
      s.world.barrier(s.context);
      ClockReading before, after;
      if (s.world.rank() == 0) std::this_thread::sleep_for(milliseconds(100));
      s.context.mark(before);
      s.world.barrier(s.context);
      s.context.mark(after);
      s.context.synchronize();
      least = std::min(least, after.cpu_ns - before.cpu_ns);
    }
    EXPECT_LT(least, 30'000'000) << "CPU time of 100 ms of waiting";
  });
}

}  // namespace
}  // namespace trident::test

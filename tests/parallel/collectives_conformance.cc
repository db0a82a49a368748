#include "parallel/collectives_conformance.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "core/error.h"
#include "parallel/rank_values.h"
#include "support/abort_on_unwind.h"

namespace trident::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr ReduceOp all_ops[] = {ReduceOp::sum,     ReduceOp::product, ReduceOp::minimum,
                                ReduceOp::maximum, ReduceOp::average, ReduceOp::bit_and,
                                ReduceOp::bit_or,  ReduceOp::bit_xor};
constexpr std::int64_t counts[] = {0, 1, 2, 7, 64, 1031};

template <class F>
void for_each_type(F&& f) {
  f.template operator()<double>();
  f.template operator()<float>();
  f.template operator()<BFloat16>();
  f.template operator()<Float16>();
  f.template operator()<std::int64_t>();
  f.template operator()<std::int32_t>();
  f.template operator()<std::uint8_t>();
}

template <class T, class F>
void for_each_op(F&& f) {
  for (const ReduceOp op : all_ops) {
    if (std::is_integral_v<T> || op < ReduceOp::bit_and) f(op);
  }
}

template <class T>
std::string label(const char* what, std::int64_t n, ReduceOp op = ReduceOp::sum) {
  return std::string(what) + " " + std::string(name_of(DTypeOf<T>::value)) + "[" +
         std::to_string(n) + "] " + std::string(name_of(op));
}

struct Seat {
  Transport& transport;
  Context& context;
  ProcessGroup world;

  template <class T>
  Tensor tensor(const std::vector<T>& values) const {
    return context.from_host<T>({static_cast<std::int64_t>(values.size())}, values,
                                Category::workspace);
  }
  template <class T>
  Tensor own(std::int64_t n, std::int64_t first = 0) const {
    return tensor(values_of<T>(world.rank(), n, first));
  }
  Tensor empty(std::int64_t n, DType dtype = DType::f32) const {
    return context.empty({n}, dtype, Category::workspace);
  }
  // A GPU's ranks know the direct algorithm only.
  bool on_host() const { return context.device().kind() == DeviceKind::cpu; }
  template <class T>
  void expect(const Tensor& got, const std::vector<T>& wanted, const std::string& what) const {
    EXPECT_TRUE(same_bytes(context.to_host<T>(got), wanted))
        << what << " on rank " << world.rank() << " of " << world.size();
  }
};

class Collectives : public testing::TestWithParam<World> {
 protected:
  void run(const std::function<void(const Seat&)>& body, TransportOptions options = {}) const {
    options.timeout = std::chrono::seconds(60);
    GetParam().run(options, [&](Transport& transport, Device& device) {
      Context context(device, 1);
      const AbortOnUnwind guard(transport);
      body({transport, context, transport.world()});
      context.synchronize();
    });
  }
};

std::vector<int> iota(int n) {
  std::vector<int> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST_P(Collectives, AllReduceIsTheSerialReductionInRankOrderToTheBit) {
  run([](const Seat& s) {
    for_each_type([&]<class T>() {
      for_each_op<T>([&](ReduceOp op) {
        for (const std::int64_t n : counts) {
          const Tensor x = s.own<T>(n);
          const Async async = n % 2 == 0 ? Async::yes : Async::no;
          s.world.all_reduce(s.context, x, op, async).wait(s.context);
          s.expect(x, reduced<T>(op, s.world.world_ranks(), n), label<T>("all_reduce", n, op));
        }
      });
    });
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsPartInPlaceToo) {
  run([](const Seat& s) {
    const int size = s.world.size(), rank = s.world.rank();
    for_each_type([&]<class T>() {
      for_each_op<T>([&](ReduceOp op) {
        for (const std::int64_t n : counts) {
          const auto wanted = reduced<T>(op, s.world.world_ranks(), n, rank * n);
          const Tensor in = s.own<T>(n * size);
          const Tensor out = n % 2 == 0 ? s.empty(n, in.dtype()) : in.flat(rank * n, n);
          s.world.reduce_scatter(s.context, in, out, op);
          s.expect(out, wanted, label<T>("reduce_scatter", n, op));
        }
      });
    });
  });
}

TEST_P(Collectives, AllGatherCollectsInRankOrderInPlaceToo) {
  run([](const Seat& s) {
    const int size = s.world.size(), rank = s.world.rank();
    for_each_type([&]<class T>() {
      for (const std::int64_t n : counts) {
        std::vector<T> wanted;
        for (int r = 0; r < size; ++r) {
          const auto part = values_of<T>(r, n);
          wanted.insert(wanted.end(), part.begin(), part.end());
        }
        const Tensor out = s.empty(n * size, DTypeOf<T>::value);
        s.world.all_gather(s.context, s.own<T>(n), out);
        s.expect(out, wanted, label<T>("all_gather", n));

        std::vector<T> mine(static_cast<std::size_t>(n * size));
        std::copy_n(values_of<T>(rank, n).begin(), n, mine.begin() + rank * n);
        const Tensor whole = s.tensor(mine);
        s.world.all_gather(s.context, whole.flat(rank * n, n), whole, Async::yes).wait(s.context);
        s.expect(whole, wanted, label<T>("all_gather in place", n));
      }
    });
  });
}

TEST_P(Collectives, RootedOperationsWorkForEveryRoot) {
  run([](const Seat& s) {
    const int size = s.world.size(), rank = s.world.rank();
    for_each_type([&]<class T>() {
      const DType dtype = DTypeOf<T>::value;
      for (int root = 0; root < size; ++root) {
        for (const std::int64_t n : {0, 1, 13, 1031}) {
          const Tensor x = s.own<T>(n);
          s.world.broadcast(s.context, x, root);
          s.expect(x, values_of<T>(root, n), label<T>("broadcast", n));

          const Tensor gathered = rank == root ? s.empty(n * size, dtype) : Tensor();
          s.world.gather(s.context, s.own<T>(n), gathered, root);
          for (int r = 0; rank == root && r < size; ++r) {
            s.expect(gathered.flat(r * n, n), values_of<T>(r, n), label<T>("gather", n));
          }

          const Tensor parts = rank == root ? s.own<T>(n * size) : Tensor();
          const Tensor part = s.empty(n, dtype);
          s.world.scatter(s.context, parts, part, root);
          s.expect(part, values_of<T>(root, n, rank * n), label<T>("scatter", n));
        }
      }
      for_each_op<T>([&](ReduceOp op) {
        const int root = static_cast<int>(op) % size;
        const Tensor x = s.own<T>(101);
        s.world.reduce(s.context, x, root, op);
        s.expect(
            x, rank == root ? reduced<T>(op, s.world.world_ranks(), 101) : values_of<T>(rank, 101),
            label<T>("reduce", 101, op));
      });
    });
  });
}

TEST_P(Collectives, AllToAllTransposesParts) {
  run([](const Seat& s) {
    const int size = s.world.size(), rank = s.world.rank();
    for_each_type([&]<class T>() {
      for (const std::int64_t n : counts) {
        const Tensor out = s.empty(n * size, DTypeOf<T>::value);
        s.world.all_to_all(s.context, s.own<T>(n * size), out);
        for (int r = 0; r < size; ++r) {
          s.expect(out.flat(r * n, n), values_of<T>(r, n, rank * n), label<T>("all_to_all", n));
        }
      }
    });
  });
}

TEST_P(Collectives, LargeTensorsOfOddSizes) {
  run([](const Seat& s) {
    const std::int64_t n = 40'009;
    const Tensor x = s.own<float>(n);
    const Work work = s.world.all_reduce(s.context, x, ReduceOp::sum, Async::yes);
    const Tensor out = s.empty(n * s.world.size());
    s.world.all_gather(s.context, s.own<float>(n), out);
    work.wait(s.context);
    s.expect(x, reduced<float>(ReduceOp::sum, s.world.world_ranks(), n), "large all_reduce");
    for (int r = 0; r < s.world.size(); ++r) {
      s.expect(out.flat(r * n, n), values_of<float>(r, n), "large all_gather");
    }
  });
}

TEST_P(Collectives, NanWinsMinimumAndMaximum) {
  run([](const Seat& s) {
    for (const ReduceOp op : {ReduceOp::minimum, ReduceOp::maximum}) {
      for (int bad = 0; bad < s.world.size(); ++bad) {
        const bool mine = s.world.rank() == bad;
        const Tensor x = s.tensor<float>({mine ? std::nanf("") : 1.0f, 2.0f});
        s.world.all_reduce(s.context, x, op);
        const auto got = s.context.to_host<float>(x);
        EXPECT_TRUE(std::isnan(got[0]) && got[1] == 2.0f) << name_of(op) << ", NaN of " << bad;
      }
    }
  });
}

TEST_P(Collectives, RingAndTreeReduceExactlyWhereOrderDoesNotMatter) {
  TransportOptions options;
  options.deterministic = false;
  run(
      [](const Seat& s) {
        for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree}) {
          if (!s.on_host() && s.world.size() > 1) {
            EXPECT_THROW(
                s.world.all_reduce(s.context, s.own<float>(8), ReduceOp::sum, Async::no, algorithm),
                RequestError);
            continue;
          }
          for_each_type([&]<class T>() {
            for_each_op<T>([&](ReduceOp op) {
              const bool exact = std::is_integral_v<T> || op == ReduceOp::minimum ||
                                 op == ReduceOp::maximum || s.world.size() <= 2;
              for (const std::int64_t n : counts) {
                const Tensor x = s.own<T>(n);
                s.world.all_reduce(s.context, x, op, Async::no, algorithm);
                const auto wanted = reduced<T>(op, s.world.world_ranks(), n);
                if (exact) {
                  s.expect(x, wanted, label<T>("ring or tree", n, op));
                  continue;
                }
                const auto got = s.context.to_host<T>(x);
                const double epsilon = std::is_same_v<T, BFloat16>  ? 0.05
                                       : std::is_same_v<T, Float16> ? 0.01
                                                                    : 1e-5;
                for (std::size_t i = 0; i < got.size(); ++i) {
                  EXPECT_NEAR(static_cast<double>(static_cast<float>(got[i])),
                              static_cast<double>(static_cast<float>(wanted[i])),
                              epsilon * (1 << s.world.size() / 2))
                      << label<T>("ring or tree", n, op);
                }
              }
            });
          });
        }
      },
      options);
}

TEST_P(Collectives, DeterministicModeRefusesRingAndTreeAboveTwoRanks) {
  TransportOptions options;
  options.algorithm = Algorithm::ring;
  run(
      [](const Seat& s) {
        const Tensor x = s.own<float>(17);
        if (s.world.size() > (s.on_host() ? 2 : 1)) {
          EXPECT_THROW(s.world.all_reduce(s.context, x), RequestError);
          EXPECT_THROW(s.world.all_reduce(s.context, x, ReduceOp::sum, Async::no, Algorithm::tree),
                       RequestError);
          s.world.all_reduce(s.context, x, ReduceOp::sum, Async::no, Algorithm::direct);
        } else {
          s.world.all_reduce(s.context, x);
        }
        s.expect(x, reduced<float>(ReduceOp::sum, s.world.world_ranks(), 17), "all_reduce");
      },
      options);
}

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

    if (rank > 0) {  // a subset that leaves rank 0 out, in a rotated order, made twice
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
      // A group of a group: positions are the parent's ranks.
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
    // Groups that fill the world, one that leaves ranks out, each rank's own, and the world again.
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
    // One that was not connected, after them.
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
      s.expect(x, reduced<float>(ReduceOp::sum, iota(size), 11), "beside the overlap");
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
    s.world.all_reduce(s.context, x, ReduceOp::product);  // waits in line
    const std::int64_t n = s.world.size();
    std::int64_t power = 1;
    for (int i = 0; i < n; ++i) power *= n;
    s.expect<std::int64_t>(x, {power}, "sum, then product");
    first.wait(s.context);
    slow.wait(s.context);
  });
}

TEST_P(Collectives, AsynchronousCollectivesGoOnWhileTheRankIsBusy) {
  run([](const Seat& s) {
    const Tensor x = s.own<float>(100'000);
    const Work work = s.world.all_reduce(s.context, x, ReduceOp::sum, Async::yes);
    for (int i = 0; i < 5000 && !work.done(); ++i) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(work.done());
    work.wait(s.context);
  });
}

TEST_P(Collectives, MessagesArriveInOrderPerChannelWhateverTheirSize) {
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
        // A send that nobody waits for still arrives; its tensor may go at once.
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
    s.world.receive(s.context, in, peer, Async::yes);  // dropped: cancelled, harmless
    s.context.synchronize();
  });
}

TEST_P(Collectives, AReceiveThatNobodyWaitsForOutlivesItsSender) {
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
  const milliseconds latency(200);
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
        pair.barrier(s.context);
        const auto start = Clock::now();
        for (const Tensor& x : out) sends.push_back(s.world.send(s.context, x, peer, Async::yes));
        EXPECT_LT(Clock::now() - start, latency) << "sends waited";
        for (const Work& receive : receives) receive.wait(s.context);
        s.context.synchronize();
        const auto taken = Clock::now() - start;
        EXPECT_GE(taken, latency - milliseconds(50));  // the peer may have left the barrier earlier
        EXPECT_LT(taken, 5 * latency) << "messages queued behind each other";
        for (int i = 0; i < 10; ++i) {
          s.expect(in[static_cast<std::size_t>(i)], values_of<float>(peer, 20'000, i), "late");
        }
        for (const Work& send : sends) send.wait(s.context);
      },
      options);
}

TEST_P(Collectives, BytesSentAreTheFormulas) {
  TransportOptions options;
  options.deterministic = false;
  run(
      [](const Seat& s) {
        const std::int64_t size = s.world.size(), n = 840 * 3;  // 1 to 8 divide it
        const ProcessGroup group = s.world.split(0, s.world.rank(), "counted");
        EXPECT_EQ(s.world.traffic().bytes_sent, 0) << "making groups is no traffic";
        std::int64_t before = 0;
        const auto sent = [&] {
          s.context.synchronize();
          const std::int64_t now = group.traffic().bytes_sent;
          return now - std::exchange(before, now);
        };
        EXPECT_EQ(sent(), 0);
        const Tensor x = s.own<float>(n), parts = s.own<float>(n * size), y = s.empty(n);
        const bool root = group.rank() == 0;
        group.all_reduce(s.context, x);
        EXPECT_EQ(sent(), 2 * (size - 1) * n / size * 4);
        if (s.on_host()) {
          group.all_reduce(s.context, x, ReduceOp::sum, Async::no, Algorithm::ring);
          EXPECT_EQ(sent(), 2 * (size - 1) * n / size * 4);
        }
        group.reduce_scatter(s.context, parts, y);
        EXPECT_EQ(sent(), (size - 1) * n * 4);
        group.all_gather(s.context, x, parts, Async::yes).wait(s.context);
        EXPECT_EQ(sent(), (size - 1) * n * 4);
        group.all_to_all(s.context, parts, s.empty(n * size));
        EXPECT_EQ(sent(), (size - 1) * n * 4);
        group.broadcast(s.context, x, 0);
        EXPECT_EQ(sent(), root ? (size - 1) * n * 4 : 0);
        group.scatter(s.context, parts, y, 0);
        EXPECT_EQ(sent(), root ? (size - 1) * n * 4 : 0);
        group.reduce(s.context, x, 0);
        EXPECT_EQ(sent(), root ? 0 : n * 4);
        group.gather(s.context, x, parts, 0);
        EXPECT_EQ(sent(), root ? 0 : n * 4);
        group.barrier(s.context);
        EXPECT_EQ(sent(), 0);
        if (size > 1) {
          if (root) group.send(s.context, x, 1, Async::yes).wait(s.context);
          if (group.rank() == 1) group.receive(s.context, x, 0);
        }
        EXPECT_EQ(sent(), root && size > 1 ? n * 4 : 0);
        if (size > 1) {  // uneven
          const std::int64_t r = group.rank(), b = 1'013;
          const auto segment = [&](std::int64_t i) {
            return b * (i % size + 1) / size - b * (i % size) / size;
          };
          group.all_reduce(s.context, s.own<float>(b));
          EXPECT_EQ(sent(), 4 * (b + (size - 2) * segment(r)));
          if (!s.on_host()) return;
          group.all_reduce(s.context, s.own<float>(b), ReduceOp::sum, Async::no, Algorithm::ring);
          EXPECT_EQ(sent(), 4 * (2 * b - segment(r + 1) - segment(r + 2)));
          group.all_reduce(s.context, s.own<float>(b), ReduceOp::sum, Async::no, Algorithm::tree);
          const Tensor total = s.tensor<std::int64_t>({sent()});
          s.world.all_reduce(s.context, total);
          s.expect<std::int64_t>(total, {2 * (size - 1) * b * 4}, "bytes of all ranks, tree");
        }
        EXPECT_EQ(s.world.split(s.world.rank(), 0, "alone").traffic().bytes_sent, 0);
      },
      options);
}

TEST_P(Collectives, NobodyLeavesABarrierBeforeAllHaveCome) {
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

// One that asks all the time takes its part of every 400 ms; one that sleeps is only now and then
// disturbed by what else the machine does.
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

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives, testing::ValuesIn(worlds()),
                         [](const auto& world) { return world.param.name; });

}  // namespace
}  // namespace trident::test

// Tests the results and the traffic of each operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "parallel/collectives/algorithm_registry.h"
#include "parallel/collectives/volume.h"
#include "parallel/collectives_seat.h"

namespace trident::test {
namespace {

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

TEST_P(Collectives, AllReduceIsBitwiseTheSerialReductionInRankOrder) {
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
        const Tensor all = s.tensor(mine);
        s.world.all_gather(s.context, all.flat(rank * n, n), all, Async::yes).wait(s.context);
        s.expect(all, wanted, label<T>("all_gather in place", n));
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

// Parts of every size, none among them, and a member that sends or gets nothing.
TEST_P(Collectives, AllToAllVMovesUnequalParts) {
  run([](const Seat& s) {
    const int size = s.world.size(), rank = s.world.rank();
    const auto part = [&](std::int64_t scale, int from, int to) -> std::int64_t {
      if (from == size - 1 && size > 2) return 0;
      if (to == 1 && size > 3) return 0;
      return scale * ((from * 3 + to * 5 + 1) % 4);
    };
    for_each_type([&]<class T>() {
      for (const std::int64_t scale : {0, 1, 37, 4099}) {
        std::vector<std::int64_t> table;
        for (int from = 0; from < size; ++from) {
          for (int to = 0; to < size; ++to) table.push_back(part(scale, from, to));
        }
        const auto begin = [&](int from, int to) {  // in the sender's input
          std::int64_t sum = 0;
          for (int p = 0; p < to; ++p) sum += part(scale, from, p);
          return sum;
        };
        std::int64_t received = 0;
        for (int from = 0; from < size; ++from) received += part(scale, from, rank);
        const Tensor out = s.empty(received, DTypeOf<T>::value);
        const Async async = scale == 37 ? Async::yes : Async::no;
        s.world.all_to_all_v(s.context, s.own<T>(begin(rank, size)), out, table, async)
            .wait(s.context);
        std::int64_t at = 0;
        for (int from = 0; from < size; ++from) {
          const std::int64_t n = part(scale, from, rank);
          s.expect(out.flat(at, n), values_of<T>(from, n, begin(from, rank)),
                   label<T>("all_to_all_v", n));
          at += n;
        }
      }
    });
  });
}

TEST_P(Collectives, LargeTensorsOfOddSizesAreReducedAndGathered) {
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

TEST_P(Collectives, NamedAlgorithmsReduceExactlyWhereOrderDoesNotMatter) {
  TransportOptions options;
  options.deterministic = false;
  run(
      [](const Seat& s) {
        for (const AlgorithmKind& kind : algorithm_registry()) {
          const Algorithm algorithm = kind.algorithm;
          if (!kind.gpu && !s.on_host() && s.world.size() > 1) {
            EXPECT_THROW(
                s.world.all_reduce(s.context, s.own<float>(8), ReduceOp::sum, Async::no, algorithm),
                RequestError);
            continue;
          }
          for_each_type([&]<class T>() {
            for_each_op<T>([&](ReduceOp op) {
              // A library may add tensors on GPUs in its own order.
              const bool exact = (kind.in_rank_order && s.on_host()) || std::is_integral_v<T> ||
                                 op == ReduceOp::minimum || op == ReduceOp::maximum ||
                                 s.world.size() <= 2;
              for (const std::int64_t n : counts) {
                const Tensor x = s.own<T>(n);
                s.world.all_reduce(s.context, x, op, Async::no, algorithm);
                const auto wanted = reduced<T>(op, s.world.world_ranks(), n);
                if (exact) {
                  s.expect(x, wanted, label<T>(kind.name.c_str(), n, op));
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
                      << label<T>(kind.name.c_str(), n, op);
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

// A group of all ranks, and the traffic of this rank since it was last read.
struct Counted {
  explicit Counted(const Seat& s) : seat(s), group(s.world.split(0, s.world.rank(), "counted")) {}
  std::int64_t sent() {
    seat.context.synchronize();
    const std::int64_t now = group.traffic().bytes_sent;
    return now - std::exchange(before, now);
  }

  const Seat& seat;
  const ProcessGroup group;
  std::int64_t before = 0;
};

TEST_P(Collectives, BytesSentAreTheFormulas) {
  TransportOptions options;
  options.deterministic = false;
  run(
      [](const Seat& s) {
        const std::int64_t size = s.world.size(), n = 840 * 3;  // 1 to 8 divide it
        Counted counted(s);
        const ProcessGroup& group = counted.group;
        const auto sent = [&] { return counted.sent(); };
        EXPECT_EQ(s.world.traffic().bytes_sent, 0) << "making groups is no traffic";
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
        std::vector<std::int64_t> table(static_cast<std::size_t>(size * size));
        for (int from = 0; from < size; ++from) {
          for (int to = 0; to < size; ++to)
            table[static_cast<std::size_t>(from * size + to)] = from;
        }
        group.all_to_all_v(s.context, s.own<float>(group.rank() * size),
                           s.empty(size * (size - 1) / 2), table);
        EXPECT_EQ(sent(), (size - 1) * group.rank() * 4);
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
        EXPECT_EQ(s.world.split(s.world.rank(), 0, "alone").traffic().bytes_sent, 0);
      },
      options);
}

TEST_P(Collectives, BytesSentOfUnevenPartsAreTheFormulas) {
  TransportOptions options;
  options.deterministic = false;
  run(
      [](const Seat& s) {
        const std::int64_t size = s.world.size(), r = s.world.rank(), b = 1'013;
        if (size == 1) return;
        Counted counted(s);
        const ProcessGroup& group = counted.group;
        const auto segment = [&](std::int64_t i) {
          return b * (i % size + 1) / size - b * (i % size) / size;
        };
        group.all_reduce(s.context, s.own<float>(b));
        EXPECT_EQ(counted.sent(), 4 * (b + (size - 2) * segment(r)));
        if (!s.on_host()) return;
        for (const AlgorithmKind& kind : algorithm_registry()) {
          group.all_reduce(s.context, s.own<float>(b), ReduceOp::sum, Async::no, kind.algorithm);
          const Descriptor d{.count = b,
                             .operation = Operation::all_reduce,
                             .dtype = DType::f32,
                             .algorithm = kind.algorithm};
          EXPECT_EQ(counted.sent(), bytes_sent(d, s.world.size(), s.world.rank())) << kind.name;
        }
        group.all_reduce(s.context, s.own<float>(b), ReduceOp::sum, Async::no, Algorithm::ring);
        EXPECT_EQ(counted.sent(), 4 * (2 * b - segment(r + 1) - segment(r + 2)));
        group.all_reduce(s.context, s.own<float>(b), ReduceOp::sum, Async::no, Algorithm::tree);
        const Tensor total = s.tensor<std::int64_t>({counted.sent()});
        s.world.all_reduce(s.context, total);
        s.expect<std::int64_t>(total, {2 * (size - 1) * b * 4}, "bytes of all ranks, tree");
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives, testing::ValuesIn(worlds()),
                         [](const auto& world) { return world.param.name; });

}  // namespace
}  // namespace trident::test

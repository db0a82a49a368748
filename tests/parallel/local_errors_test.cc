// Tests the failures that end all ranks of the local transport, and the texts of their errors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/error.h"
#include "core/context.h"
#include "parallel/transport/nccl/nccl.h"
#include "parallel/transport/transport.h"
#include "support/abort_on_unwind.h"
#include "support/devices.h"
#include "support/slowly.h"

namespace trident {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Runs the body on every rank of both devices, with a tensor to use. Expects run_local to throw an
// E with this text within seconds, and every other rank to be stopped by that error or by an
// AbortedError that repeats it.
constexpr int most_ranks = 8;

struct Place {
  On on;
  bool nccl = false;
  TransportOptions waiting(milliseconds timeout) const {
    return {.timeout = timeout, .library = nccl ? &nccl_library : nullptr};
  }
};

class LocalErrors : public testing::TestWithParam<Place> {
 protected:
  using Body = std::function<void(Transport&, Context&, const ProcessGroup&)>;

  template <class E>
  void expect_error(int ranks, const testing::Matcher<std::string>& text, const Body& body,
                    milliseconds timeout = std::chrono::seconds(60)) const {
    std::vector<std::shared_ptr<Device>> devices = devices_of(ranks);
    const TransportOptions options = GetParam().waiting(timeout);
    std::atomic<int> stopped{0};
    const auto start = std::chrono::steady_clock::now();
    try {
      run_local(ranks, options, [&](Transport& transport) {
        try {
          Context context(*devices[static_cast<std::size_t>(transport.world().rank())], 1);
          const AbortOnUnwind guard(transport);
          body(transport, context, transport.world());
          context.synchronize();
        } catch (const std::exception& e) {
          if (dynamic_cast<const AbortedError*>(&e)) {
            EXPECT_THAT(e.what(), HasSubstr("was stopped by rank"));
          }
          ++stopped;
          throw;
        }
      });
      FAIL() << "no error";
    } catch (const E& e) {
      EXPECT_THAT(e.what(), text);
      EXPECT_EQ(dynamic_cast<const AbortedError*>(&e) != nullptr, (std::is_same_v<E, AbortedError>))
          << "not the first error: " << e.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, slowly(5000));
    EXPECT_GT(stopped, 0);
    stopped_ = stopped;
  }
  // A rank whose NCCL operation was aborted gets the error at its next operation.
  void expect_stopped(int ranks) const {
    EXPECT_LE(stopped_, ranks);
    EXPECT_GE(stopped_, GetParam().nccl ? 1 : ranks);
  }
  // One device for all ranks, or with NCCL a GPU for each rank.
  static std::vector<std::shared_ptr<Device>> devices_of(int ranks) {
    std::vector<std::shared_ptr<Device>> devices;
    for (int r = 0; r < ranks; ++r) {
      devices.push_back(GetParam().nccl ? std::shared_ptr<Device>(make_cuda_device(r))
                        : r == 0        ? std::shared_ptr<Device>(make_device(GetParam().on))
                                        : devices.front());
    }
    return devices;
  }
  static Tensor tensor(Context& context, std::int64_t n = 1024, DType dtype = DType::f32) {
    return context.empty({n}, dtype, Category::workspace);
  }
  static void all_to_all_v_of(Context& c, const ProcessGroup& g, std::int64_t n) {
    const auto size = static_cast<std::int64_t>(g.size());
    g.all_to_all_v(c, tensor(c, n * size), tensor(c, n * size),
                   std::vector<std::int64_t>(static_cast<std::size_t>(size * size), n));
  }
  mutable int stopped_ = 0;
};

TEST_P(LocalErrors, DifferentOperationsAreBothNamedAndEndAllRanks) {
  expect_error<CommunicationError>(2,
                                   AllOf(HasSubstr("group 'world' (ranks 0,1): operation #2: "),
                                         HasSubstr("rank 0 called all_reduce(fp32[1024], sum), "),
                                         HasSubstr("rank 1 called broadcast(fp32[1024], root 1)")),
                                   [](Transport&, Context& c, const ProcessGroup& g) {
                                     g.all_reduce(c, tensor(c));
                                     g.all_reduce(c, tensor(c));
                                     if (g.rank() == 0) {
                                       g.all_reduce(c, tensor(c));
                                     } else {
                                       g.broadcast(c, tensor(c), 1);
                                     }
                                   });
  expect_stopped(2);
}

TEST_P(LocalErrors, EveryPairOfDifferentCallsIsFound) {
  const std::vector<std::function<void(Context&, const ProcessGroup&)>> calls = {
      [](Context& c, const ProcessGroup& g) { g.all_reduce(c, tensor(c)); },
      [](Context& c, const ProcessGroup& g) { g.all_reduce(c, tensor(c, 1023)); },
      [](Context& c, const ProcessGroup& g) { g.all_reduce(c, tensor(c, 512, DType::f64)); },
      [](Context& c, const ProcessGroup& g) { g.all_reduce(c, tensor(c), ReduceOp::maximum); },
      [](Context& c, const ProcessGroup& g) {
        g.reduce_scatter(c, tensor(c, 4 * g.size()), tensor(c, 4));
      },
      [](Context& c, const ProcessGroup& g) {
        g.all_gather(c, tensor(c, 4), tensor(c, 4 * g.size()));
      },
      [](Context& c, const ProcessGroup& g) { g.broadcast(c, tensor(c), 0); },
      [](Context& c, const ProcessGroup& g) { g.broadcast(c, tensor(c), 1); },
      [](Context& c, const ProcessGroup& g) { g.reduce(c, tensor(c), 0); },
      [](Context& c, const ProcessGroup& g) { g.reduce(c, tensor(c), 1); },
      [](Context& c, const ProcessGroup& g) {
        g.gather(c, tensor(c), tensor(c, 1024 * g.size()), 1);
      },
      [](Context& c, const ProcessGroup& g) {
        g.scatter(c, tensor(c, 1024 * g.size()), tensor(c), 0);
      },
      [](Context& c, const ProcessGroup& g) { g.all_to_all(c, tensor(c, 12), tensor(c, 12)); },
      [](Context& c, const ProcessGroup& g) { all_to_all_v_of(c, g, 3); },
      [](Context& c, const ProcessGroup& g) { all_to_all_v_of(c, g, 4); },
      [](Context& c, const ProcessGroup& g) { g.barrier(c); }};
  for (const int ranks : {2, 4}) {
    for (std::size_t a = 0; a < calls.size(); ++a) {
      for (std::size_t b = 0; b < calls.size(); ++b) {
        if (a == b) continue;
        // The ranks agree on the first operation, one of them differs in the second.
        expect_error<CommunicationError>(
            ranks,
            AllOf(HasSubstr("operation #1: rank "), HasSubstr(" called "), HasSubstr(", rank ")),
            [&](Transport&, Context& c, const ProcessGroup& g) {
              g.all_reduce(c, tensor(c, 3));
              calls[g.rank() == ranks - 1 ? b : a](c, g);
            });
        if (HasFailure()) FAIL() << "calls " << a << " and " << b << ", ranks " << ranks;
      }
    }
  }
}

TEST_P(LocalErrors, AsynchronousMismatchSurfacesAtTheWait) {
  expect_error<CommunicationError>(3,
                                   AllOf(HasSubstr("group 'tensor' (ranks 0,1,2): operation #0"),
                                         HasSubstr("fp32[8], sum"), HasSubstr("fp32[9], sum")),
                                   [](Transport&, Context& c, const ProcessGroup& g) {
                                     const int members[] = {0, 1, 2};
                                     const ProcessGroup group = g.subgroup(members, "tensor");
                                     const Work work =
                                         group.all_reduce(c, tensor(c, g.rank() == 1 ? 9 : 8),
                                                          ReduceOp::sum, Async::yes);
                                     work.wait(c);
                                   });
}

TEST_P(LocalErrors, MessagesOfTheWrongSizeOrTypeAreNamed) {
  expect_error<CommunicationError>(
      2,
      AllOf(HasSubstr("group 'world' (ranks 0,1): message #1 from rank 0 to rank 1 on channel 2"),
            HasSubstr("rank 0 sent fp32[5], rank 1 expects bf16[5]")),
      [](Transport&, Context& c, const ProcessGroup& g) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
          if (g.rank() == 0) {
            g.send(c, tensor(c, 5), 1, Async::no, 2);
          } else {
            g.receive(c, tensor(c, 5, dtype), 0, Async::no, 2);
          }
        }
        g.barrier(c);
      });
}

TEST_P(LocalErrors, ARankLaterThanTheTimeoutIsNamed) {
  const auto late = [](Transport& transport, Context& c, const ProcessGroup& g) {
    g.barrier(c);
    if (g.rank() == 2) {
      while (true) {  // busy with other work until the error reaches it
        std::this_thread::sleep_for(milliseconds(10));
        g.send(c, tensor(c, 0), 0, Async::yes);
        c.synchronize();
      }
    }
    g.all_reduce(c, tensor(c));
    c.synchronize();
    transport.abort("not reached");
  };
  expect_error<CommunicationError>(
      3,
      AllOf(HasSubstr("group 'world' (ranks 0,1,2): operation #1: all_reduce(fp32[1024], sum): "),
            HasSubstr(fmt::format("waited {} ms for rank 2", slowly(150).count())),
            Not(HasSubstr("not reached"))),
      late, slowly(150));
  expect_stopped(3);
}

TEST_P(LocalErrors, AMessageThatNeverComesOrIsNeverTakenIsLate) {
  for (const bool sends : {false, true}) {
    expect_error<CommunicationError>(
        2,
        AllOf(HasSubstr("message #0 from rank"),
              HasSubstr(fmt::format("rank 0 waited {} ms for rank 1", slowly(100).count()))),
        [&](Transport&, Context& c, const ProcessGroup& g) {
          if (g.rank() == 1) {
            std::this_thread::sleep_for(slowly(300));
            g.barrier(c);
          } else if (sends) {
            g.send(c, tensor(c, 100'000), 1);
          } else {
            g.receive(c, tensor(c), 1);
          }
        },
        slowly(100));
  }
}

TEST_P(LocalErrors, WhereALateRankWaitsItselfTheEndOfTheChainIsNamed) {
  for (const bool collective : {false, true}) {
    expect_error<CommunicationError>(
        3,
        HasSubstr(fmt::format("rank 0 waited {} ms for rank 1; rank 1 waits for rank 2",
                              slowly(400).count())),
        [&](Transport&, Context& c, const ProcessGroup& g) {
          g.barrier(c);
          const int members[] = {1, 2};
          if (g.rank() == 0) g.receive(c, tensor(c), 1);
          if (g.rank() == 1) {
            std::this_thread::sleep_for(slowly(150));  // rank 0's wait ends first
            if (collective) {
              g.subgroup(members, "others").barrier(c);
            } else {
              g.receive(c, tensor(c), 2);
            }
          }
          if (g.rank() == 2) {
            std::this_thread::sleep_for(slowly(1200));
            g.barrier(c);
          }
        },
        slowly(400));
  }
}

struct Special : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST_P(LocalErrors, AGroupWithoutTimeoutWaitsBeyondTheTimeoutButNotForOneThatHasEnded) {
  const milliseconds timeout = slowly(150), work = slowly(500);
  const auto devices = devices_of(3);
  run_local(3, GetParam().waiting(timeout), [&](Transport& transport) {
    const ProcessGroup world = transport.world(), files = world.without_timeout("files");
    Context c(*devices[static_cast<std::size_t>(world.rank())], 1);
    if (world.rank() == 2) std::this_thread::sleep_for(work);
    files.barrier(c);
    const ProcessGroup part = files.split(0, world.rank(), "part");  // has no time-out either
    if (world.rank() == 1) std::this_thread::sleep_for(work);
    part.barrier(c);
    world.barrier(c);
  });
  expect_error<CommunicationError>(3, HasSubstr("rank 1, which has ended"),
                                   [](Transport&, Context& c, const ProcessGroup& g) {
                                     const ProcessGroup files = g.without_timeout("files");
                                     if (g.rank() != 1) files.barrier(c);
                                   });
  expect_error<Special>(3, testing::Eq("disk full"),
                        [](Transport&, Context& c, const ProcessGroup& g) {
                          const ProcessGroup files = g.without_timeout("files");
                          if (g.rank() == 1) throw Special("disk full");
                          files.barrier(c);
                        });
  expect_stopped(3);
}

TEST_P(LocalErrors, AnExceptionOfOneRankEndsAllAndIsRethrownAsItWas) {
  expect_error<Special>(8, testing::Eq("disk full"),
                        [](Transport&, Context& c, const ProcessGroup& g) {
                          g.barrier(c);
                          // The error has to end each kind of wait: synchronous, asynchronous, and
                          // for a message.
                          const Tensor x = tensor(c, 100'000);
                          if (g.rank() == 5) throw Special("disk full");
                          if (g.rank() % 3 == 0) g.all_reduce(c, x);
                          if (g.rank() % 3 == 1) {
                            g.all_reduce(c, x, ReduceOp::sum, Async::yes).wait(c);
                          }
                          if (g.rank() % 3 == 2) g.receive(c, x, 5);
                        });
  expect_stopped(8);
}

TEST_P(LocalErrors, AnExceptionIsTheFirstErrorThoughTheStreamStillWaitsForPeers) {
  expect_error<Special>(4, testing::Eq("first"), [](Transport&, Context& c, const ProcessGroup& g) {
    if (g.rank() == 2) {
      // No rank sends to this receive. On the CPU the call itself would wait.
      if (!c.stream().immediate()) g.receive(c, tensor(c), 1);
      throw Special("first");
    }
    g.all_reduce(c, tensor(c));
  });
}

TEST_P(LocalErrors, ErrorsOfRanksThatCleanUpAfterTheFirstDoNotHideIt) {
  expect_error<Special>(4, testing::Eq("first"), [](Transport&, Context& c, const ProcessGroup& g) {
    if (g.rank() == 3) throw Special("first");
    try {
      g.barrier(c);
    } catch (const AbortedError&) {
      throw Special("second");
    }
  });
}

TEST_P(LocalErrors, ARankThatHasEndedIsNotWaitedFor) {
  for (const bool collective : {false, true}) {
    expect_error<CommunicationError>(3, AllOf(HasSubstr("rank 1, which has ended")),
                                     [&](Transport&, Context& c, const ProcessGroup& g) {
                                       if (g.rank() == 1) return;
                                       if (g.rank() == 2)
                                         std::this_thread::sleep_for(milliseconds(20));
                                       if (collective) {
                                         g.broadcast(c, tensor(c), 1);
                                       } else {
                                         g.receive(c, tensor(c), 1);
                                       }
                                     });
    expect_stopped(2);
  }
}

// Rank 2 is late twice because of work on files, once in a message and once in a collective. Both
// times rank 1 waits for it and makes rank 0 late.
TEST_P(LocalErrors, WorkOnFilesDoesNotCount) {
  const auto devices = devices_of(3);
  run_local(3, GetParam().waiting(slowly(200)), [&](Transport& transport) {
    const ProcessGroup g = transport.world();
    Context c(*devices[static_cast<std::size_t>(g.rank())], 1);
    const Tensor x = tensor(c, 6);
    g.all_reduce(c, x);  // opens the connections
    c.synchronize();
    if (g.rank() == 2) {
      const FileWork reading = g.file_work();
      std::this_thread::sleep_for(slowly(500));
    }
    if (g.rank() == 0) g.receive(c, x, 1);
    if (g.rank() == 1) g.receive(c, x, 2);
    if (g.rank() == 1) g.send(c, x, 0);
    if (g.rank() == 2) g.send(c, x, 1);
    c.synchronize();
    if (g.rank() == 2) {
      const FileWork reading = g.file_work();
      std::this_thread::sleep_for(slowly(500));
    }
    g.all_reduce(c, x);
    g.barrier(c);
  });
}

TEST_P(LocalErrors, TimeAfterWorkOnFilesCounts) {
  expect_error<CommunicationError>(
      2, HasSubstr(fmt::format("waited {} ms for rank 1", slowly(200).count())),
      [](Transport&, Context& c, const ProcessGroup& g) {
        if (g.rank() == 1) {
          { const FileWork reading = g.file_work(); }
          std::this_thread::sleep_for(slowly(1500));
        }
        g.barrier(c);
      },
      slowly(200));
}

TEST_P(LocalErrors, AbortStopsEveryRankWithItsReason) {
  expect_error<AbortedError>(4, HasSubstr("was stopped by rank 3: loss is not finite"),
                             [](Transport& transport, Context& c, const ProcessGroup& g) {
                               if (g.rank() == 3) transport.abort("loss is not finite");
                               g.barrier(c);
                               g.barrier(c);
                             });
  expect_stopped(4);
}

TEST_P(LocalErrors, BadArgumentsAreRequestErrorsThatNameTheGroup) {
  const auto devices = devices_of(2);
  run_local(2, GetParam().waiting(std::chrono::seconds(60)), [&](Transport& transport) {
    Context c(*devices[static_cast<std::size_t>(transport.world().rank())], 1);
    const ProcessGroup g = transport.world();
    const auto refused = [](const std::string& text, const std::function<void()>& call) {
      try {
        call();
        ADD_FAILURE() << "no error, wanted: " << text;
      } catch (const RequestError& e) {
        EXPECT_THAT(e.what(), HasSubstr(text));
      }
    };
    const Tensor x = tensor(c, 6);
    refused("all_reduce on group 'world' (ranks 0,1): tensor is undefined",
            [&] { g.all_reduce(c, Tensor()); });
    refused("bit_or is for integers, the tensor is fp32",
            [&] { g.all_reduce(c, x, ReduceOp::bit_or); });
    refused("input is fp32[6]; output is fp32[6] and needs fp32[12] there",
            [&] { g.reduce_scatter(c, x, x); });
    refused("output is fp32[6]; input is fp32[6]", [&] { g.all_gather(c, x, x); });
    refused("root 2 is not a rank of the group, 0 to 1", [&] { g.broadcast(c, x, 2); });
    refused("root -1", [&] { g.reduce(c, x, -1); });
    refused("both must hold 2 equal parts", [&] { g.all_to_all(c, tensor(c, 7), tensor(c, 7)); });
    refused("all_to_all_v on group 'world' (ranks 0,1): 3 counts; needs 4, none negative", [&] {
      g.all_to_all_v(c, x, x, {1, 2, 3});
    });
    refused("none negative", [&] { g.all_to_all_v(c, x, x, {1, 2, 3, -1}); });
    refused("input is fp32[6], output fp32[6]; the counts say 6 and 4", [&] {
      g.all_to_all_v(c, x, x,
                     g.rank() == 0 ? std::vector<std::int64_t>{2, 4, 2, 4}
                                   : std::vector<std::int64_t>{0, 2, 4, 2});
    });
    refused("is this rank itself", [&] { g.send(c, x, g.rank()); });
    refused("channel 8 is not one of 0 to 7", [&] { g.receive(c, x, 1 - g.rank(), Async::no, 8); });
    refused("undefined process group", [&] { ProcessGroup().all_reduce(c, x); });
    const int others[] = {1 - g.rank()};
    refused("contain the caller", [&] { g.subgroup(others, "others"); });
    g.barrier(c);  // none of those calls has sent anything to the other rank
  });
  EXPECT_THROW(run_local(0, {}, [](Transport&) {}), RequestError);
  EXPECT_THROW(run_local(1, {.timeout = milliseconds(0)}, [](Transport&) {}), RequestError);
}

std::vector<Place> places() {
  std::vector<Place> all{{On::cpu}, {On::guarded}};
  if (find_gpus().count > 0) all.push_back({On::cuda});
  if (find_gpus().count >= most_ranks) all.push_back({On::cuda, true});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Devices, LocalErrors, testing::ValuesIn(places()), [](const auto& place) {
  return place.param.nccl ? std::string("nccl") : std::string(name_of(place.param.on));
});

}  // namespace
}  // namespace trident

// The conformance suite over MPI, one rank a process, and scenarios that must end the whole job:
//   mpirun -n 4 parallel_collectives_mpi_test
//   mpirun -n 3 parallel_collectives_mpi_test mismatch|late|chain|frozen|throw|request|ended|abort
//                                             unopened
//   mpirun -n 8 parallel_collectives_mpi_test late_by_mpi|late_by_mpi_first|mismatch_by_mpi
//   mpirun -n 4 parallel_collectives_mpi_test late_carried_1|late_carried_2|late_carried_first_3
// and one that must not: without_timeout. tests/parallel/mpi_errors_test.py runs them.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/error.h"
#include "core/context.h"
#include "kernels/elementwise.h"
#include "parallel/collectives_conformance.h"
#include "parallel/transport/mpi_job.h"

namespace trident::test {

std::vector<World> worlds() {
  const auto world = [](const std::string& name, std::unique_ptr<Device> (*make)()) {
    return World{name, [make](const auto& options, const auto& body) {
                   const auto device = make();
                   const auto transport = make_mpi_transport(options);
                   body(*transport, *device);
                 }};
  };
  // The ranks share no memory, as each has a node of its own.
  const World apart{"CpuMessages", [](TransportOptions options, const auto& body) {
                      options.ranks_per_node = 1;
                      const auto device = make_cpu_device();
                      const auto transport = make_mpi_transport(options);
                      body(*transport, *device);
                    }};
  return {world("Cpu", make_cpu_device), world("Guarded", [] { return make_guarded_device(); }),
          apart};
}

namespace {

using Scenario = void (*)(Transport&, Context&, const ProcessGroup&, const Tensor&);

// Rank `Late` is late for a carried sum, after `Before` other sums.
template <int Late, int Before>
void late_for_carried(Transport&, Context& c, const ProcessGroup& g, const Tensor&) {
  const Tensor large = c.empty({std::int64_t{1} << 20}, DType::f32, Category::workspace);
  fill(c, large, 0);
  g.barrier(c);
  for (int i = 0; i < Before; ++i) g.all_reduce(c, large);
  c.synchronize();
  if (g.rank() == Late) std::this_thread::sleep_for(std::chrono::seconds(60));
  g.all_reduce(c, large);
}

const std::map<std::string, Scenario> scenarios = {
    {"mismatch",
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor& x) {
       g.all_reduce(c, x);
       if (g.rank() == 1) {
         g.broadcast(c, x, 1);
       } else {
         g.all_reduce(c, x);
       }
     }},
    {"late",
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor& x) {
       g.barrier(c);
       if (g.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
       g.all_reduce(c, x);
     }},
    {"files",
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor& x) {
       g.barrier(c);
       if (g.rank() == 2) {
         const FileWork reading = g.file_work();
         std::this_thread::sleep_for(std::chrono::milliseconds(2500));
       }
       if (g.rank() == 0) g.receive(c, x, 1);  // rank 1 waits for rank 2, which reads
       if (g.rank() == 1) {
         g.receive(c, x, 2);
         g.send(c, x, 0);
       }
       if (g.rank() == 2) g.send(c, x, 1);
       g.all_reduce(c, x);
     }},
    {"late_after_files",
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor& x) {
       g.barrier(c);
       if (g.rank() == 1) {
         {
           const FileWork reading = g.file_work();
           std::this_thread::sleep_for(std::chrono::milliseconds(1500));
         }
         std::this_thread::sleep_for(std::chrono::seconds(60));
       }
       g.all_reduce(c, x);
     }},
    {"chain",
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor& x) {
       g.barrier(c);
       if (g.rank() == 1) g.receive(c, x, 2);  // its limit is a minute
       std::this_thread::sleep_for(std::chrono::milliseconds(400));
       if (g.rank() == 0) g.receive(c, x, 1);
       std::this_thread::sleep_for(std::chrono::seconds(60));
     }},
    {"frozen",  // the rank stops at any moment of a payload
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor&) {
       const Tensor large = c.empty({std::int64_t{4} << 20}, DType::f32, Category::workspace);
       fill(c, large, 0);
       std::thread stop;
       if (g.rank() == 1) {
         stop = std::thread([] {
           std::this_thread::sleep_for(std::chrono::milliseconds(500));
           ::raise(SIGSTOP);
         });
       }
       for (;;) g.all_reduce(c, large);
     }},
    {"late_carried_1", late_for_carried<1, 2>},
    {"late_carried_2", late_for_carried<2, 2>},
    {"late_carried_first_3", late_for_carried<3, 0>},
    {"late_by_mpi_first",
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor& x) {
       g.barrier(c);
       if (g.rank() == 4) std::this_thread::sleep_for(std::chrono::seconds(60));
       g.all_reduce(c, x);
     }},
    {"late_by_mpi",
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor& x) {
       for (int i = 0; i < 3; ++i) g.all_reduce(c, x);
       c.synchronize();
       if (g.rank() == 5) std::this_thread::sleep_for(std::chrono::seconds(60));
       g.all_reduce(c, x);
     }},
    {"mismatch_by_mpi",
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor& x) {
       g.all_reduce(c, x);
       g.all_reduce(c, x, g.rank() == 5 ? ReduceOp::average : ReduceOp::sum);
     }},
    {"throw",
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor& x) {
       g.barrier(c);
       if (g.rank() == 1) throw std::runtime_error("disk full");
       g.all_reduce(c, x);
     }},
    {"together",  // meanwhile the lowest rank that fails is kept from its core
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor&) {
       g.barrier(c);
       // Waits for the next quarter of a second, at which all ranks of a host arrive together.
       const auto next_quarter = [] {
         constexpr std::chrono::milliseconds quarter(250);
         const auto now = std::chrono::system_clock::now().time_since_epoch();
         std::this_thread::sleep_for(quarter - now % quarter);
       };
       next_quarter();
       if (g.rank() == 0) {
         const std::string own = std::to_string(::getpid());
         const std::string freeze = "(sleep 0.35; kill -STOP " + own + "; sleep 0.6; kill -CONT " +
                                    own + ") >/dev/null 2>&1 &";
         if (std::system(freeze.c_str()) != 0) throw std::runtime_error("no shell");
       }
       next_quarter();
       if (g.rank() != 1) throw std::runtime_error("disk full");
       g.barrier(c);
     }},
    {"without_timeout",
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor&) {
       const ProcessGroup files = g.without_timeout("files");
       for (int slow = 0; slow < g.size(); ++slow) {
         if (g.rank() == slow) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
         files.barrier(c);
       }
       g.barrier(c);
     }},
    {"ended",
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor& x) {
       if (g.rank() != 1) g.receive(c, x, 1);
     }},
    {"request",
     [](Transport&, Context& c, const ProcessGroup& g, const Tensor& x) {
       g.barrier(c);
       if (g.rank() == 1) throw RequestError("config: /model: another");
       g.all_reduce(c, x);
     }},
    {"unopened", [](Transport&, Context&, const ProcessGroup&, const Tensor&) {}},
    {"abort", [](Transport& t, Context& c, const ProcessGroup& g, const Tensor&) {
       if (g.rank() == 1) t.abort("loss is not finite");
       g.barrier(c);
     }}};

int run_scenario(const std::string& name) {
  const bool short_of_time = name.starts_with("late") || name == "files" ||
                             name == "without_timeout" || name == "frozen" || name == "unopened";
  const auto device = make_cpu_device();
  Context context(*device, 1);
  const Tensor x = context.empty({1024}, DType::f32, Category::workspace);
  const auto job = make_mpi_job();
  job->begin(0, 0, std::chrono::seconds(60));
  if (name == "unopened" && job->rank() == 1) ::raise(SIGSTOP);
  const bool first_of_chain = name == "chain" && job->rank() == 0;
  // MPI's own all-reduce is chosen without shared memory outside deterministic mode
  // (parallel/collectives/algorithm_choice.cc).
  const bool by_mpi = name.find("_by_mpi") != std::string::npos;
  const bool carried = name.find("_carried") != std::string::npos;
  run_mpi(
      {.deterministic = !by_mpi,
       .timeout = std::chrono::seconds(short_of_time || first_of_chain ? 1 : 60),
       .ranks_per_node = by_mpi    ? 1
                         : carried ? 2
                                   : 0},
      [&](Transport& transport) { scenarios.at(name)(transport, context, transport.world(), x); });
  job->finish(0);
  return 0;
}

// Rank 0 prints everything, the other ranks only their failures.
class OnlyFailures : public testing::EmptyTestEventListener {
 public:
  explicit OnlyFailures(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) std::printf("rank %d: %s\n", rank_, result.message());
  }

 private:
  int rank_;
};

}  // namespace
}  // namespace trident::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) return trident::test::run_scenario(argv[1]);
  // Keeps MPI initialised while the tests make transports with their own options.
  const auto keep = trident::make_mpi_transport({});
  if (keep->world().rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new trident::test::OnlyFailures(keep->world().rank()));
  }
  return RUN_ALL_TESTS();
}

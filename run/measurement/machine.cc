// `trident bench machine`.
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/median.h"
#include "base/process/process.h"
#include "base/units.h"
#include "core/available_memory.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "kernels/elementwise.h"
#include "planner/machine/fitted_link.h"
#include "planner/plan/planned_rank.h"
#include "report/product_rate.h"
#include "run/measurement/bench.h"
#include "run/measurement/measured.h"
#include "run/measurement/measured_kernels.h"
#include "run/measurement/measured_skew.h"

namespace trident {
namespace {

class MachineBench {
 public:
  explicit MachineBench(const MachineRequest& request)
      : request_(request),
        devices_(need_alike(request.configs)),
        machine_(request.known),
        threads_(static_cast<int>(request.configs.front().runtime.threads_per_rank)),
        together_(devices_.gpu().empty() ? std::max(1, request.cores / threads_) : 1) {}

  Machine run() {
    need_same_device();
    choose_ranks();
    for (int round = 0; round < request_.rounds; ++round) {
      for (const Rank& rank : ranks_) {
        if (has_time()) measure(rank, round);
      }
    }
    // Fitted efficiencies belong to the older times, so reset them and rescale the kernels that
    // stay: their predicted times don't change.
    for (auto& [name, kernels] : machine_.device.kernels) {
      for (MeasuredKernel& one : kernels) one.seconds /= efficiency_of(machine_, name);
    }
    machine_.efficiency = {};
    machine_.error = {};  // it belongs to the older times
    kernels_.enter(machine_);
    describe();
    return machine_;
  }

 private:
  static const Config& need_alike(const std::vector<Config>& configs) {
    const RuntimeConfig& first = configs.front().runtime;
    for (const Config& config : configs) {
      if (config.runtime.device == first.device &&
          config.runtime.threads_per_rank == first.threads_per_rank) {
        continue;
      }
      throw RequestError(
          "--grid: /runtime/device and /runtime/threads_per_rank must be the same in all "
          "layouts; bring others by a file of their own");
    }
    return configs.front();
  }

  // A machine's file holds the kernels of one device only.
  void need_same_device() const {
    if (request_.known.name.empty()) return;
    bench::need_same_device(request_.known, bench::device_name(devices_, threads_),
                            "bench machine");
  }

  // A rank of a config that runs kernels which no earlier rank runs.
  struct Rank {
    const Config* config = nullptr;
    int rank = 0;
  };

  void choose_ranks() {
    std::string last;
    for (const Config& config : request_.configs) {
      try {
        const RankPlanner planner(config, *architecture_of(config), schedule_of(config));
        const std::vector<int> pipeline = mesh_of(config.parallel).pipeline(0);
        for (std::size_t place = 0; place < pipeline.size(); ++place) {
          const TracedStep step = planner.trace(static_cast<int>(place));
          if (kernels_.see(step.trace)) ranks_.push_back({&config, pipeline[place]});
        }
      } catch (const RequestError& error) {
        last = error.what();  // for example, a schedule that needs more micro-batches
      }
    }
    if (ranks_.empty()) throw RequestError(last);
  }

  // Whether time is left for a rank as slow as the slowest so far. Peaks and links need `rest`
  // seconds.
  bool has_time() const {
    constexpr double rest = 4;
    return request_.seconds <= 0 || longest_ == 0 ||
           seconds_since(begin_) + longest_ + rest < request_.seconds;
  }

  static double seconds_since(const ClockReading& begin) {
    return bench::seconds_between(begin, read_clock());
  }

  void measure(const Rank& one, int round) {
    const ClockReading begin = read_clock();
    const Config& config = *one.config;
    const Architecture& architecture = *architecture_of(config);
    const Schedule schedule = schedule_of(config);
    std::vector<MeasuredRank> ran(static_cast<std::size_t>(together_));
    std::vector<std::vector<OperationTrace>> traces(ran.size());
    std::vector<std::exception_ptr> errors(ran.size());
    std::vector<std::thread> threads;
    // All ranks run each iteration at the same time, as in training.
    std::barrier together(together_);
    for (std::size_t i = 0; i < ran.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          const RankPlanner planner(config, architecture, schedule);
          ran[i] = planner.measure(
              one.rank, devices_.of(static_cast<int>(i)), request_.iterations,
              {.begin = [&] { together.arrive_and_wait(); },
               .ran = [&, i](const OperationTrace& trace) { traces[i].push_back(trace); }});
        } catch (...) {
          errors[i] = std::current_exception();
        }
        together.arrive_and_drop();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    for (std::size_t iteration = 0; iteration < traces.front().size(); ++iteration) {
      std::vector<const OperationTrace*> alike;
      for (const auto& of_rank : traces) alike.push_back(&of_rank[iteration]);
      for (const OperationTrace* trace : alike) kernels_.take(*trace);
      skew_.take(alike);
    }
    longest_ = std::max(longest_, seconds_since(begin));
    if (!request_.report) return;
    request_.report(fmt::format("round {}: rank {} of {}: {} operations a step, {:.1f} ms\n",
                                round + 1, one.rank, config.world_size(),
                                ran.front().step.trace.operations().size(),
                                1e3 * median(ran.front().seconds)));
  }

  void describe() {
    Machine::Device& device = machine_.device;
    const bool gpu = !devices_.gpu().empty();
    device.gpu = gpu;
    device.name = bench::device_name(devices_, threads_);
    machine_.name = gpu ? devices_.gpu() : processor_name();
    machine_.source = fmt::format("measured by trident bench machine: {}", devices_.text());
    if (request_.known.name.empty() || !gpu) {
      machine_.devices_per_node = gpu ? devices_.count() : together_;
      machine_.nodes = 1;
    }
    device.memory =
        static_cast<double>(gpu ? devices_.memory(1).value_or(0) : available_memory() / together_);
    // A queue that lags behind the host hides the host's time between kernels.
    if (const double between = kernels_.between(); between > 0) device.launch = between;
    if (const auto skew = skew_.part()) device.skew = *skew;
    Context context(devices_.of(0), threads_, {.deterministic = false});
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      if (dtype == DType::f16 && !gpu && !computes_in(dtype))
        continue;  // slow, and rarely used on a CPU
      // The maker's figure where it is known; MFU uses the same.
      const PrecisionConfig precision{.dtype = std::string(name_of(dtype))};
      const std::optional<double> peak = devices_.peak(precision);
      device.peak[dtype] =
          peak ? *peak : product_rate(context, dtype, usual_product(context, dtype));
    }
    device.memory_bandwidth = gpu ? copy_rate(context) : 0;
    measure_links(gpu);
  }

  bool computes_in(DType dtype) const {
    return std::any_of(request_.configs.begin(), request_.configs.end(), [&](const Config& config) {
      return dtype_of(config.precision.dtype) == dtype;
    });
  }

  // Bytes read and written per second, for tensors far larger than the caches.
  static double copy_rate(Context& context) {
    constexpr std::int64_t elements = std::int64_t{64} << 20;
    const Tensor from = context.empty({elements}, DType::f32, Category::workspace);
    const Tensor to = context.empty({elements}, DType::f32, Category::workspace);
    fill(context, from, 0);
    std::vector<double> seconds;
    for (int i = 0; i < 7; ++i) {
      ClockReading begin, end;
      context.mark(begin);
      copy(context, from, to);
      context.mark(end);
      context.synchronize();
      seconds.push_back(bench::seconds_between(begin, end));
    }
    return 8.0 * elements / median(seconds);
  }

  void measure_links(bool gpu) {
    if (gpu) {
      // The links of the known file stay.
      if (!request_.known.name.empty()) return;
      machine_.source += "; links: not measured, a copy within the GPU";
      machine_.inside = {machine_.device.memory_bandwidth / 2, 10e-6};
      machine_.across = machine_.inside;
      return;
    }
    const int ranks = std::max(2, together_);
    const bench::Json rows = bench_links(ranks);
    machine_.device.memory_bandwidth = 2e9 * rows["copy_gb_per_second"].get<double>() / ranks;
    std::vector<TimedAllReduce> times;
    for (const bench::Json& row : rows["all_reduce"]) {
      times.push_back({row["bytes"].get<double>(), 1e-6 * row["microseconds"].get<double>()});
    }
    machine_.inside = machine_.across = fitted_link(times, ranks);
  }

  const MachineRequest& request_;
  const Devices devices_;
  Machine machine_;
  int threads_, together_;
  const ClockReading begin_ = read_clock();
  double longest_ = 0;  // seconds of the slowest measurement of a rank
  std::vector<Rank> ranks_;
  MeasuredKernels kernels_;
  MeasuredSkew skew_;
};

}  // namespace

Machine bench_machine(const MachineRequest& request) {
  return MachineBench(request).run();
}

std::string bench_machine_text(const Machine& machine) {
  const Machine::Device& device = machine.device;
  std::string text = fmt::format("{}\n{} of {}, {} each\n", machine.source,
                                 counted(machine.devices_per_node, "device"), device.name,
                                 bytes_text(device.memory));
  for (const auto& [dtype, rate] : device.peak) {
    text += fmt::format("products in {}: {:.1f} GFLOP/s\n", name_of(dtype), rate * 1e-9);
  }
  std::size_t sizes = 0;
  for (const auto& [name, kernels] : device.kernels) sizes += kernels.size();
  return text + fmt::format(
                    "copies: {:.2f} GB/s; between kernels: {:.2f} µs\nlinks: {:.2f} GB/s, {:.1f} "
                    "µs\n{} kernels in {} sizes",
                    device.memory_bandwidth * 1e-9, device.launch * 1e6,
                    machine.inside.bandwidth * 1e-9, machine.inside.latency * 1e6,
                    device.kernels.size(), sizes);
}

}  // namespace trident

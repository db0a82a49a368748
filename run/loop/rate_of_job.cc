#include "run/loop/rate_of_job.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files/json.h"
#include "base/process/process.h"
#include "engine/setup/from_config.h"
#include "kernels/backend.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;

// One process's knowledge of its machine.
struct Own {
  MachineKind kind;
  int threads = 1;             // of this process
  double count = 1;            // GPUs; a fraction if several processes share one
  std::optional<double> peak;  // of one GPU, from its data sheet
};

Own own_of(const Config& config, const Launch& launch, const Devices& devices) {
  Own own;
  own.kind.dtype = config.precision.dtype;
  const std::int64_t ranks = launch.mpi ? launch.local_ranks : config.world_size();
  if (!devices.gpu().empty()) {
    own.kind.processor = devices.gpu();
    if (config.precision.tf32 && own.kind.dtype == "fp32") own.kind.way = "tf32";
    own.peak = devices.peak(config.precision);
    if (own.peak) own.kind.way += own.kind.way.empty() ? "peak" : " peak";
    const auto here =
        std::min<std::int64_t>(devices.count(), ranks_on_gpus(launch, ranks, devices.count()));
    // A process that was given GPUs of its own uses one of them.
    const std::int64_t sharing =
        launch.mpi ? std::min(ranks, ranks_on_gpus(launch, ranks, devices.count())) : 1;
    own.count = static_cast<double>(here) / static_cast<double>(sharing);
    return own;
  }
  const std::int64_t threads = config.runtime.threads_per_rank;
  const std::int64_t cores = launch.cores;
  own.threads = static_cast<int>(std::min(launch.mpi ? threads : ranks * threads, cores));
  own.kind.processor = processor_name();
  own.kind.instructions = cpu_backend().instructions();
  if (own.kind.dtype == "bf16" && config.runtime.bf16_products != "auto")
    own.kind.way = config.runtime.bf16_products;
  own.kind.threads = std::min(ranks * threads, cores);
  return own;
}

// Measures on a new thread. OpenMP keeps a team for each thread that had one; with more threads in
// teams than cores, the ranks' teams would sleep at the end of every loop.
MeasuredRate measured(const Config& config, const Launch& launch, const Devices& devices,
                      const Own& own, double known) {
  return std::async(std::launch::async,
                    [&] {
                      Context context(
                          devices.of(launch.local_rank), own.threads,
                          kernel_options(config.training, config.precision, config.runtime));
                      return measure_rate(context, dtype_of(config.precision.dtype), known);
                    })
      .get();
}

// The sums of the reports of a host's processes, for one kind of machine.
struct OfHost {
  double best = 0, median = 0, count = 0, parts = 0;
};

// Combines the reports of all processes into the job's rate. A process reports its measured rates,
// the number of devices of its kind that it counts for, and its part of the divisor of the sum of
// these rates on a host. The divisor is the number of GPUs, or, if threads share cores, how often
// the host's cores were counted.
JobRate together(const std::vector<std::string>& all, const BestRates& known,
                 const std::string& file) {
  std::map<std::pair<std::string, std::string>, OfHost> hosts;  // by host and kind
  for (const std::string& text : all) {
    const Json one = ordered_json_or_null(text);
    OfHost& host = hosts[{one["host"], one["kind"]}];
    host.best += one["best"].get<double>();
    host.median += one["median"].get<double>();
    host.count += one["count"].get<double>();
    host.parts += one["part"].get<double>();
  }
  JobRate rate;
  for (auto& [of, host] : hosts) {
    const std::string& kind = of.second;
    rate.machines[kind] += std::round(host.count);
    raise(rate.best, kind, host.best / std::max(1.0, host.parts));
    if (const auto found = known.find(kind); found != known.end()) {
      raise(rate.best, kind, found->second);
    }
  }
  for (const auto& [of, host] : hosts) {
    if (!rate.busy.empty() || host.median <= 0) continue;
    const double median = host.median / std::max(1.0, host.parts);
    const auto kept = known.find(of.second);
    const double best = rate.best[of.second];
    const bool from_file = kept != known.end() && kept->second == best;
    rate.busy = busy_text(of.second, {.median = median}, best, from_file ? file : "");
    if (!rate.busy.empty() && hosts.size() > 1) {
      rate.busy = of.first + ": " + rate.busy;
      if (from_file) rate.busy += " (the file is rank 0's)";
    }
  }
  return rate;
}

}  // namespace

JobRate rate_of_job(const Config& config, const Launch& launch, const Devices& devices,
                    const std::string& file) {
  const Own own = own_of(config, launch, devices);
  const std::string kind = name_of(own.kind);
  const BestRates known = read_best_rates(file);
  MeasuredRate rate;
  if (own.peak) {
    rate.best = *own.peak * (launch.mpi ? own.count : 1);
  } else {
    // All processes of a machine measure at once, each on its own threads.
    const auto before = known.find(kind);
    rate = measured(config, launch, devices, own, before == known.end() ? 0 : before->second);
  }
  const bool gpu = !devices.gpu().empty();
  const double measures =
      launch.mpi ? 1 : own.count;  // one measured GPU stands for all of this process
  // All processes of a machine together count as one processor.
  const double processors = 1.0 / (launch.mpi ? launch.local_ranks : 1);
  const Json ours{{"host", host_name()},
                  {"kind", kind},
                  {"best", rate.best * measures},
                  {"median", rate.median * measures},
                  {"count", gpu ? own.count : processors},
                  {"part", gpu ? own.count : static_cast<double>(own.threads) / own.kind.threads}};
  JobRate job;
  launch.start->exchange(
      json_text(ours),
      [&](const std::vector<std::string>& all) {
        job = together(all, known, file);
        return std::string();
      },
      std::chrono::seconds(60));
  if (launch.leads && !own.peak) keep_best_rates(file, job.best);
  return job;
}

void measure_again(JobRate& job, const Config& config, const Launch& launch, const Devices& devices,
                   const std::string& file) {
  const Own own = own_of(config, launch, devices);
  const std::string kind = name_of(own.kind);
  if (own.peak || !job.machines.contains(kind)) return;
  raise(job.best, kind, measured(config, launch, devices, own, 0).best);
  keep_best_rates(file, job.best);
}

}  // namespace trident

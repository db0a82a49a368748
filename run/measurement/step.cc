// `trident bench step`.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "datasets/synthetic_batches.h"
#include "engine/monitor.h"
#include "engine/rank_model.h"
#include "engine/setup/from_config.h"
#include "engine/setup/model_costs.h"
#include "engine/setup/registry.h"
#include "engine/stepper.h"
#include "kernels/backend.h"
#include "report/best_rates.h"
#include "report/product_rate.h"
#include "run/measurement/bench.h"
#include "run/measurement/measured.h"

namespace trident {
namespace {

using bench::Json;

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

std::int64_t rss_bytes() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

class StepBench {
 public:
  explicit StepBench(const Config& config)
      : config_(config),
        architecture_(*architecture_of(config)),
        devices_(config),
        schedule_(schedule_of(config)),
        flops_(flops_per_step(config, architecture_)),
        peak_(devices_.peak(config.precision)),
        gpus_(static_cast<double>(std::min<std::int64_t>(devices_.count(), config.world_size()))),
        rss_before_(rss_bytes()) {}

  // Each rank calls this with its own `transport`.
  void train(Transport& transport, int iterations);
  Json result(int iterations) const;

 private:
  // The seconds of a step, which all ranks begin and end together, its bubble and its loss.
  struct Step {
    double seconds = 0, bubble = 0, loss = 0;
  };
  Step step(Context& context, const ProcessGroup& world, Stepper& stepper, Monitor& monitor,
            const std::vector<HostMicroBatch>& batches) const;
  // Several measurements of the FLOP/s of all devices together, after a step of `step_seconds`.
  std::vector<double> product_rates_now(Context& all_threads, double step_seconds) const;
  void add_memory(const Ledger::Figures& figures);

  const Config& config_;
  const Architecture& architecture_;
  const Devices devices_;
  const Schedule schedule_;
  const double flops_;
  // The maker's figure for one GPU, where it is known. Several ranks may share a GPU.
  const std::optional<double> peak_;
  const double gpus_;
  const std::int64_t rss_before_;
  // Values of rank 0. Other load on the machine varies, so the product rate is measured after each
  // step and the best rate counts.
  std::vector<double> times_, rates_, bubbles_;
  std::string instructions_;
  double loss_ = 0;
  std::mutex mutex_;
  Json ledger_ = {{"peak_bytes", 0}, {"largest_rank", Json::object()}};  // over all ranks
};

std::vector<double> StepBench::product_rates_now(Context& all_threads, double step_seconds) const {
  if (peak_) return {*peak_ * gpus_};
  const DType dtype = dtype_of(config_.precision.dtype);
  std::vector<double> rates = product_rates(all_threads, dtype, usual_product(all_threads, dtype),
                                            std::max(0.1, step_seconds / 20));
  for (double& rate : rates) rate *= gpus_;
  return rates;
}

StepBench::Step StepBench::step(Context& context, const ProcessGroup& world, Stepper& stepper,
                                Monitor& monitor,
                                const std::vector<HostMicroBatch>& batches) const {
  monitor.begin();
  world.barrier(context);
  const ClockReading begin = read_clock();
  auto now = batches;
  for (int ahead = 0; ahead < stepper.look_ahead(); ++ahead) {
    now.push_back(batches[static_cast<std::size_t>(ahead) % batches.size()]);
  }
  const StepResult result = stepper.train(now, config_.optimizer.params.lr);
  world.barrier(context);
  const double seconds = bench::seconds_between(begin, read_clock());
  monitor.end();
  return {seconds, monitor.collect().bubble_ratio, result.loss};
}

void StepBench::train(Transport& transport, int iterations) {
  Device& device = devices_.of(transport.world().rank());
  Context context(device, static_cast<int>(config_.runtime.threads_per_rank),
                  kernel_options(config_.training, config_.precision, config_.runtime));
  end_all_on_error(transport, [&] {
    const Topology topology = topology_of(config_.parallel, schedule_, transport);
    RankModel model(context, config_, architecture_, schedule_, topology);
    Stepper stepper(model, schedule_);
    model.initialise();
    Monitor monitor(stepper, topology.world.duplicate("monitor"));
    const auto batches = synthetic_batches(
        config_, static_cast<std::uint64_t>(batch_shape(config_.batch, topology).place));
    std::optional<Context> all_threads;
    if (topology.world.rank() == 0) {
      const std::int64_t threads = config_.world_size() * config_.runtime.threads_per_rank;
      all_threads.emplace(device, static_cast<int>(threads),
                          kernel_options(config_.training, config_.precision, config_.runtime));
      instructions_ = backend_of(context).instructions();
    }
    for (int i = -2; i < iterations; ++i) {
      const Step now = step(context, topology.world, stepper, monitor, batches);
      if (topology.world.rank() != 0) continue;
      loss_ = now.loss;
      const std::vector<double> after = product_rates_now(*all_threads, now.seconds);
      if (i >= 0) {
        times_.push_back(now.seconds);
        bubbles_.push_back(now.bubble);
      }
      rates_.insert(rates_.end(), after.begin(), after.end());
    }
    add_memory(context.ledger().figures());
  });
}

void StepBench::add_memory(const Ledger::Figures& figures) {
  const std::lock_guard lock(mutex_);
  ledger_["peak_bytes"] = ledger_["peak_bytes"].get<std::int64_t>() + figures.peak_total;
  const auto largest = [&](std::string_view name, std::int64_t bytes) {
    Json& value = ledger_["largest_rank"][std::string(name)];
    value = std::max(bytes, value.is_null() ? 0 : value.get<std::int64_t>());
  };
  for (int c = 0; c < category_count; ++c) {
    largest(name_of(static_cast<Category>(c)), figures.peak[static_cast<std::size_t>(c)]);
  }
  largest("total", figures.peak_total);
}

Json StepBench::result(int iterations) const {
  const double seconds = median(times_);
  const double tokens = static_cast<double>(config_.batch.global_batch_size) *
                        static_cast<double>(config_.data.sequence_length);
  // A rate that a step reached is a lower bound of the machine's rate.
  const double fastest = flops_ / std::ranges::min(times_);
  const double rate = std::max(std::ranges::max(rates_), fastest);
  const std::string busy =
      busy_text(devices_.text(), {.best = rate, .median = median(rates_)}, rate);
  return {{"milliseconds", seconds * 1e3},
          {"tokens_per_second", tokens / seconds},
          {"mfu", flops_ / seconds / rate},
          {"product_gflops", rate * 1e-9},
          {"busy", busy.empty() ? Json(nullptr) : Json(busy)},
          {"model_gflops", flops_ / seconds * 1e-9},
          {"bubble_ratio", median(bubbles_)},
          {"rss_bytes_before", rss_before_},
          {"peak_rss_bytes", peak_rss_bytes()},
          {"ledger", ledger_},  // its peak_bytes is the sum over the ranks
          {"dtype", config_.precision.dtype},
          {"bf16_products", config_.runtime.bf16_products},
          {"instructions", instructions_},
          {"device", devices_.text()},
          {"versions", bench::versions_json(devices_)},
          {"ranks", config_.world_size()},
          {"threads_per_rank", config_.runtime.threads_per_rank},
          {"iterations", iterations},
          {"loss", loss_}};
}

}  // namespace

Json bench_step(const Config& config, int iterations) {
  if (transport_constraints(config).processes) {
    const auto others =
        names_where(config.constraints->transports,
                    [](const TransportConstraints& kind) { return !kind.processes; });
    throw RequestError(fmt::format(
        "config: /runtime/transport: \"{}\": bench step runs its ranks in one process{}",
        config.runtime.transport,
        others.empty() ? "" : fmt::format("; use \"{}\"", others.front())));
  }
  StepBench measured(config);
  run_local(static_cast<int>(config.world_size()), transport_options(config),
            [&](Transport& transport) { measured.train(transport, iterations); });
  return measured.result(iterations);
}

std::string bench_step_text(const Json& r) {
  std::string text = fmt::format(
      "{} a step (median), {:.0f} tokens/s, MFU {} of {:.1f} GFLOP/s ({}, {}), peak resident {}",
      seconds_text(1e-3 * r["milliseconds"].get<double>()), r["tokens_per_second"].get<double>(),
      percent_text(r["mfu"]), r["product_gflops"].get<double>(), r["dtype"].get<std::string>(),
      r["instructions"].get<std::string>(), bytes_text(r["peak_rss_bytes"].get<std::int64_t>()));
  if (r["busy"].is_string()) text += "\n" + r["busy"].get<std::string>();
  return text;
}

}  // namespace trident

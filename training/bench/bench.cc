#include "training/bench/bench.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "kernels/backend.h"
#include "parallel/transport/nccl/nccl.h"
#include "training/engine/monitor.h"
#include "training/engine/rank_model.h"
#include "training/plan/plan.h"
#include "training/report/product_rate.h"
#include "training/run/trainer.h"
#include "training/setup/from_config.h"
#include "training/setup/kinds.h"
#include "training/setup/model_costs.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_between(const ClockReading& from, const ClockReading& to) {
  return static_cast<double>(to.wall_ns - from.wall_ns) * 1e-9;
}

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

std::vector<HostMicroBatch> random_batches(const Config& config, std::uint64_t seed) {
  std::vector<HostMicroBatch> list(static_cast<std::size_t>(config.num_microbatches()));
  std::uint32_t index = 0;
  for (HostMicroBatch& batch : list) {
    const auto tokens = config.batch.micro_batch_size * config.data.sequence_length;
    for (std::int64_t i = 0; i <= tokens; ++i) {
      const auto word = philox({index++, 0, 0, 0}, {static_cast<std::uint32_t>(seed), 1})[0];
      const auto token =
          static_cast<std::int32_t>(word % static_cast<std::uint32_t>(config.model.vocab_size));
      if (i < tokens) batch.tokens.push_back(token);
      if (i > 0) batch.labels.push_back(token);
    }
    for (std::int64_t i = 0; i < config.batch.micro_batch_size; ++i) {
      batch.sample_ids.push_back(static_cast<std::int64_t>(index) + i);
    }
  }
  return list;
}

Json versions_json(const Devices& devices) {
  Json versions = Json::object();
  for (const auto& [name, version] : devices.versions()) versions[name] = version;
  if (!devices.versions().empty()) versions["nccl"] = nccl_version();
  return versions;
}

}  // namespace

Json bench_gemm(const Devices& devices, int threads) {
  Context context(devices.of(0), threads, {.deterministic = false});
  Json products = Json::array();
  std::vector<DType> dtypes{DType::f32, DType::bf16};
  if (!devices.gpu().empty()) dtypes.push_back(DType::f16);
  for (const DType dtype : dtypes) {
    for (const ProductShape shape : {usual_product(context, dtype), ProductShape{1024, 768, 3072},
                                     ProductShape{1024, 3072, 768}, ProductShape{1024, 768, 2304},
                                     ProductShape{1024, 768, 50304}, ProductShape{256, 128, 512}}) {
      products.push_back({{"dtype", name_of(dtype)},
                          {"m", shape.m},
                          {"k", shape.k},
                          {"n", shape.n},
                          {"gflops", product_rate(context, dtype, shape) * 1e-9}});
    }
  }
  return {{"threads", threads},
          {"device", devices.text()},
          {"versions", versions_json(devices)},
          {"instructions", backend_of(context).instructions()},
          {"products", products}};
}

std::string bench_gemm_text(const Json& result) {
  std::string text =
      fmt::format("{} threads, {}\n{:>6} {:>6} {:>6} {:>6} {:>10}\n", result["threads"].get<int>(),
                  result["device"].get<std::string>(), "dtype", "m", "k", "n", "GFLOP/s");
  for (const Json& p : result["products"]) {
    text += fmt::format("{:>6} {:>6} {:>6} {:>6} {:>10.1f}\n", p["dtype"].get<std::string>(),
                        p["m"].get<int>(), p["k"].get<int>(), p["n"].get<int>(),
                        p["gflops"].get<double>());
  }
  return text;
}

namespace {

// How much time a row of the table may take, once a call has shown how long it is.
constexpr double kRowSeconds = 1;
// A size whose single call would take longer, by the size before, is left out.
constexpr double kLongestCall = 3;

// The slowest rank's: who sends may be done long before it has arrived.
double slowest(Context& context, const ProcessGroup& world, double seconds) {
  const std::int64_t own[]{static_cast<std::int64_t>(seconds * 1e9)};
  const Tensor value = context.from_host<std::int64_t>({1}, own, Category::communication);
  world.all_reduce(context, value, ReduceOp::maximum);
  return static_cast<double>(context.to_host<std::int64_t>(value)[0]) * 1e-9;
}

// Median seconds of one call of `run` on this rank, all ranks starting together. The first call
// says how many fit the time of a row; where that is none more, it is all there is.
template <class Run>
double timed(Context& context, const ProcessGroup& world, bool small, Run run) {
  const auto seconds_of = [&](int calls) {
    world.barrier(context);
    ClockReading begin, end;
    context.mark(begin);
    for (int j = 0; j < calls; ++j) run();
    context.mark(end);
    context.synchronize();
    return seconds_between(begin, end) / calls;
  };
  const double first = seconds_of(1);
  const double fit = kRowSeconds / slowest(context, world, std::max(first, 1e-9));
  if (fit < 1) return first;
  const int calls = small ? static_cast<int>(std::clamp(fit / 50, 1.0, 20.0)) : 1;
  const int repeats = static_cast<int>(std::clamp(fit / calls, 1.0, small ? 50.0 : 7.0));
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) times.push_back(seconds_of(calls));
  return median(times);
}

constexpr auto kColumns = "{:>14} {:>9} {:>9} {:>6} {:>10} {:>12} {:>8}\n";

std::string row_text(const char* operation, const Json& r) {
  return fmt::format(fmt::runtime(kColumns), operation, r["transport"].get<std::string>(),
                     r["algorithm"].get<std::string>(), r["ranks"].get<int>(),
                     r["bytes"].get<std::int64_t>(),
                     fmt::format("{:.1f}", r["microseconds"].get<double>()),
                     fmt::format("{:.2f}", r["gb_per_second"].get<double>()));
}

Json collectives_of(Context& context, const ProcessGroup& world, const char* name,
                    std::int64_t largest, const Print& print) {
  const int ranks = world.size();
  const auto show = [&](const std::string& text) {
    if (print && world.rank() == 0) print(text);
  };
  show(fmt::format(fmt::runtime(kColumns), "operation", "transport", "algorithm", "ranks", "bytes",
                   "µs", "GB/s"));
  const auto zeros = [&](std::int64_t bytes) {
    const Tensor tensor = context.empty({bytes / 4}, DType::f32, Category::communication);
    fill(context, tensor, 0);
    return tensor;
  };
  // Rows of one operation; `call` runs it once on a tensor of the message's size, which is rounded
  // down to a multiple of `parts` elements.
  const auto rows_of = [&](const char* operation,
                           const std::vector<std::pair<std::string, Algorithm>>& algorithms,
                           std::int64_t parts, auto call) {
    Json rows = Json::array();
    for (const auto& [label, algorithm] : algorithms) {
      double rate = 0;  // of the size before
      for (const std::int64_t bytes :
           {std::int64_t{4} << 10, std::int64_t{64} << 10, std::int64_t{1} << 20,
            std::int64_t{8} << 20, std::int64_t{64} << 20}) {
        if (bytes > largest) break;
        if (const double expected = static_cast<double>(bytes) / rate;
            rate > 0 && expected > kLongestCall) {
          show(fmt::format("{:>14} {}: {} bytes and more would take {:.0f} s a call: left out\n",
                           operation, label, bytes, expected));
          break;
        }
        const Tensor tensor = zeros(bytes / 4 / parts * parts * 4);
        const double seconds = slowest(context, world,
                                       timed(context, world, bytes < (1 << 20),
                                             [&, kind = algorithm] { call(tensor, kind); }));
        rows.push_back({{"transport", name},
                        {"algorithm", label},
                        {"ranks", ranks},
                        {"bytes", tensor.bytes()},
                        {"microseconds", seconds * 1e6},
                        {"gb_per_second", static_cast<double>(tensor.bytes()) / seconds * 1e-9}});
        show(row_text(operation, rows.back()));
        rate = static_cast<double>(tensor.bytes()) / seconds;
      }
    }
    return rows;
  };
  const auto own_part = [&](const Tensor& tensor) {
    const std::int64_t count = tensor.numel() / ranks;
    return tensor.flat(world.rank() * count, count);
  };
  std::vector<std::pair<std::string, Algorithm>> algorithms;
  for (const AlgorithmKind& kind : algorithm_kinds()) {
    algorithms.emplace_back(kind.name, kind.algorithm);
  }
  algorithms.emplace_back("auto", Algorithm::automatic);
  const Json all_reduce =
      rows_of("all_reduce", algorithms, 1, [&](const Tensor& tensor, Algorithm kind) {
        world.all_reduce(context, tensor, ReduceOp::sum, Async::no, kind);
      });
  const auto one_way = [&](const char* operation, std::int64_t parts, auto call) {
    return rows_of(operation, {{"direct", Algorithm::direct}}, parts,
                   [&](const Tensor& tensor, Algorithm) { call(tensor); });
  };
  const Json reduce_scatter = one_way("reduce_scatter", ranks, [&](const Tensor& tensor) {
    world.reduce_scatter(context, tensor, own_part(tensor));
  });
  const Json all_gather = one_way("all_gather", ranks, [&](const Tensor& tensor) {
    world.all_gather(context, own_part(tensor), tensor);
  });
  const Json broadcast =
      one_way("broadcast", 1, [&](const Tensor& tensor) { world.broadcast(context, tensor, 0); });
  // Every member's message is read and written once, whoever does it: no all-reduce that leaves the
  // caches is faster than as many copies of the message as there are members.
  constexpr std::int64_t beyond_caches = std::int64_t{64} << 20;
  const Tensor from = zeros(beyond_caches), to = zeros(beyond_caches);
  const double seconds = timed(context, world, false, [&] { copy(context, from, to); });
  const double rate = static_cast<double>(beyond_caches) / seconds * 1e-9;
  return {{"all_reduce", all_reduce},           {"reduce_scatter", reduce_scatter},
          {"all_gather", all_gather},           {"broadcast", broadcast},
          {"copy_gb_per_second", rate * ranks}, {"bound_gb_per_second", rate}};
}

Json collectives_of(Transport& transport, const char* name, std::int64_t largest,
                    const Print& print) {
  const auto device = make_cpu_device();
  Context context(*device, 1);
  return end_all_on_error(
      transport, [&] { return collectives_of(context, transport.world(), name, largest, print); });
}

}  // namespace

Json bench_collectives(int ranks, std::int64_t largest, const Print& print) {
  Json result;
  run_local(ranks, {.deterministic = false}, [&](Transport& transport) {
    Json own = collectives_of(transport, "local", largest, print);
    if (transport.world().rank() == 0) result = std::move(own);
  });
  return result;
}

Json bench_collectives_mpi(std::int64_t largest, const Print& print) {
  const auto transport = make_mpi_transport({.deterministic = false});
  return collectives_of(*transport, "mpi", largest, print);
}

std::string bench_collectives_text(const Json& result) {
  return fmt::format(
      "copies by all ranks: {:.2f} GB/s; so no all-reduce beyond the caches is faster than {:.2f} "
      "GB/s\n",
      result["copy_gb_per_second"].get<double>(), result["bound_gb_per_second"].get<double>());
}

Json bench_step(const Config& config, int iterations) {
  if (transport_rules(config).processes) {
    throw RequestError("config: /runtime/transport: \"" + config.runtime.transport +
                       "\": bench step runs its ranks in one process; use \"local\"");
  }
  const Architecture& architecture = *architecture_of(config);
  const Devices devices(config);
  const auto threads = config.world_size() * config.runtime.threads_per_rank;
  const DType dtype = dtype_of(config.precision.dtype);
  const Schedule schedule = schedule_of(config);
  const double flops = flops_per_step(config, architecture);
  // Of a GPU what its maker says, where that is known; several ranks may share one.
  const auto peak = devices.peak(config.precision);
  const auto gpus =
      static_cast<double>(std::min<std::int64_t>(devices.count(), config.world_size()));
  // Other users of the machine come and go: the product's rate is taken before and after each step.
  std::vector<double> times, rates, shares, bubbles;
  std::string instructions;
  StepResult last;
  const std::int64_t rss_before = rss_bytes();
  Json ledger = {{"peak_bytes", 0}, {"largest_rank", Json::object()}};
  std::mutex mutex;
  run_local(
      static_cast<int>(config.world_size()), transport_options(config), [&](Transport& transport) {
        Device& device = devices.of(transport.world().rank());
        Context context(device, static_cast<int>(config.runtime.threads_per_rank),
                        kernel_options(config));
        end_all_on_error(transport, [&] {
          const Topology topology = topology_of(config, schedule, transport);
          RankModel model(context, config, architecture, schedule, topology);
          model.initialise();
          Monitor monitor(model, topology.world.duplicate("monitor"));
          const auto batches = random_batches(
              config, static_cast<std::uint64_t>(batch_shape(config, topology).place));
          std::optional<Context> all_threads;
          if (topology.world.rank() == 0) {
            all_threads.emplace(device, static_cast<int>(threads), kernel_options(config));
            instructions = backend_of(context).instructions();
          }
          double before = 0;
          for (int i = -2; i < iterations; ++i) {
            monitor.begin();
            topology.world.barrier(context);
            const ClockReading begin = read_clock();
            auto now = batches;
            for (int ahead = 0; ahead < model.look_ahead(); ++ahead) {
              now.push_back(batches[static_cast<std::size_t>(ahead) % batches.size()]);
            }
            const StepResult step = model.train(now, config.optimizer.params.lr);
            topology.world.barrier(context);
            const double seconds = seconds_between(begin, read_clock());
            monitor.end();
            const double bubble = monitor.collect().bubble_ratio;
            if (topology.world.rank() != 0) continue;
            last = step;
            const double after =
                peak ? *peak * gpus
                     : gpus * product_rate(*all_threads, dtype, usual_product(*all_threads, dtype),
                                           std::max(0.1, seconds / 20));
            if (i >= 0) {
              times.push_back(seconds);
              rates.push_back((before + after) / 2);
              shares.push_back(flops / seconds / rates.back());
              bubbles.push_back(bubble);
            }
            before = after;
          }
          const Ledger::Figures figures = context.ledger().figures();
          const std::lock_guard lock(mutex);
          ledger["peak_bytes"] = ledger["peak_bytes"].get<std::int64_t>() + figures.peak_total;
          const auto largest = [&](std::string_view name, std::int64_t bytes) {
            Json& value = ledger["largest_rank"][std::string(name)];
            value = std::max(bytes, value.is_null() ? 0 : value.get<std::int64_t>());
          };
          for (int c = 0; c < category_count; ++c) {
            largest(name_of(static_cast<Category>(c)), figures.peak[static_cast<std::size_t>(c)]);
          }
          largest("total", figures.peak_total);
        });
      });
  const double seconds = median(times);
  const double tokens = static_cast<double>(config.batch.global_batch_size) *
                        static_cast<double>(config.data.sequence_length);
  const double rate = median(rates);
  return {{"milliseconds", seconds * 1e3},
          {"tokens_per_second", tokens / seconds},
          {"mfu", median(shares)},
          {"product_gflops", rate * 1e-9},
          {"model_gflops", flops / seconds * 1e-9},
          {"bubble_ratio", median(bubbles)},
          {"rss_bytes_before", rss_before},
          {"peak_rss_bytes", peak_rss_bytes()},
          {"ledger", ledger},  // peak_bytes: the ranks' sum
          {"dtype", config.precision.dtype},
          {"instructions", instructions},
          {"device", devices.text()},
          {"versions", versions_json(devices)},
          {"ranks", config.world_size()},
          {"threads_per_rank", config.runtime.threads_per_rank},
          {"iterations", iterations},
          {"loss", last.loss}};
}

std::string bench_step_text(const Json& r) {
  return fmt::format(
      "{:.1f} ms a step, {:.0f} tokens/s, MFU {:.1f}% of {:.1f} GFLOP/s ({}, {}), peak resident "
      "{:.0f} MB",
      r["milliseconds"].get<double>(), r["tokens_per_second"].get<double>(),
      100 * r["mfu"].get<double>(), r["product_gflops"].get<double>(),
      r["dtype"].get<std::string>(), r["instructions"].get<std::string>(),
      r["peak_rss_bytes"].get<double>() * 1e-6);
}

}  // namespace trident

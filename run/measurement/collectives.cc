// `trident bench collectives`.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "core/context.h"
#include "kernels/elementwise.h"
#include "parallel/collectives/algorithm_registry.h"
#include "parallel/transport/transport.h"
#include "run/measurement/bench.h"
#include "run/measurement/measured.h"

namespace trident {
namespace {

using bench::Json;

// Time for a row of the table. The first call shows how many calls fit.
constexpr double kRowSeconds = 1;
// The same for bench_links().
constexpr double kLinkSeconds = 0.2;
constexpr std::int64_t kBeyondCaches = std::int64_t{64} << 20;  // bytes
// Seconds. A size is left out if its call would take longer, by the rate of the size before.
constexpr double kLongestCall = 3;

// The time of the slowest rank: a sender may finish long before its message arrives.
double slowest(Context& context, const ProcessGroup& world, double seconds) {
  const std::int64_t own[]{static_cast<std::int64_t>(seconds * 1e9)};
  const Tensor value = context.from_host<std::int64_t>({1}, own, Category::communication);
  world.all_reduce(context, value, ReduceOp::maximum);
  return static_cast<double>(context.to_host<std::int64_t>(value)[0]) * 1e-9;
}

// Median seconds of one call of `run` on this rank; all ranks start together. The first call shows
// how many calls fit the time of a row. If no other call fits, returns the time of the first.
template <class Run>
double timed(Context& context, const ProcessGroup& world, double row_seconds, bool small, Run run) {
  const auto seconds_of = [&](int calls) {
    world.barrier(context);
    ClockReading begin, end;
    context.mark(begin);
    for (int j = 0; j < calls; ++j) run();
    context.mark(end);
    context.synchronize();
    return bench::seconds_between(begin, end) / calls;
  };
  const double first = seconds_of(1);
  const double fit = row_seconds / slowest(context, world, std::max(first, 1e-9));
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
                     bytes_text(r["bytes"].get<std::int64_t>()),
                     fmt::format("{:.1f}", r["microseconds"].get<double>()),
                     fmt::format("{:.2f}", r["gb_per_second"].get<double>()));
}

// Measures all rows on one rank of a world.
class Measurement {
 public:
  Measurement(Context& context, const ProcessGroup& world, const char* transport,
              std::int64_t largest, const Print& print, double row_seconds = kRowSeconds)
      : context_(context),
        world_(world),
        transport_(transport),
        largest_(largest),
        print_(print),
        row_seconds_(row_seconds) {}

  Json all();
  Json links();

 private:
  using Algorithms = std::vector<std::pair<std::string, Algorithm>>;

  // Measures the rows of one operation. `call` runs it once on a tensor of the message's size,
  // rounded down to a multiple of `parts` elements.
  template <class Call>
  Json rows_of(const char* operation, const Algorithms& algorithms, std::int64_t parts, Call call);
  // The same for an operation with a single algorithm.
  template <class Call>
  Json one_way(const char* operation, std::int64_t parts, Call call) {
    return rows_of(operation, {{"direct", Algorithm::direct}}, parts,
                   [&](const Tensor& tensor, Algorithm) { call(tensor); });
  }
  template <class Call>
  Json row_of(const std::string& label, const Tensor& tensor, bool small, Call call);

  Json all_reduces(const Algorithms& algorithms);
  // Bytes/s that one rank copies while each rank copies `bytes`.
  double copy_rate(std::int64_t bytes);

  void show(const std::string& text) const {
    if (print_ && world_.rank() == 0) print_(text);
  }
  Tensor zeros(std::int64_t bytes) {
    Tensor tensor = context_.empty({bytes / 4}, DType::f32, Category::communication);
    fill(context_, tensor, 0);
    return tensor;
  }
  Tensor own_part(const Tensor& tensor) const {
    const std::int64_t count = tensor.numel() / world_.size();
    return tensor.flat(world_.rank() * count, count);
  }

  Context& context_;
  const ProcessGroup& world_;
  const char* transport_;
  std::int64_t largest_;
  const Print& print_;
  double row_seconds_;
};

template <class Call>
Json Measurement::row_of(const std::string& label, const Tensor& tensor, bool small, Call call) {
  const double seconds =
      slowest(context_, world_, timed(context_, world_, row_seconds_, small, call));
  return {{"transport", transport_},
          {"algorithm", label},
          {"ranks", world_.size()},
          {"bytes", tensor.bytes()},
          {"microseconds", seconds * 1e6},
          {"gb_per_second", static_cast<double>(tensor.bytes()) / seconds * 1e-9}};
}

template <class Call>
Json Measurement::rows_of(const char* operation, const Algorithms& algorithms, std::int64_t parts,
                          Call call) {
  Json rows = Json::array();
  for (const auto& [label, algorithm] : algorithms) {
    double rate = 0;  // bytes/s of the size before
    for (const std::int64_t bytes :
         {std::int64_t{4} << 10, std::int64_t{64} << 10, std::int64_t{1} << 20,
          std::int64_t{8} << 20, std::int64_t{64} << 20}) {
      if (bytes > largest_) break;
      if (const double expected = static_cast<double>(bytes) / rate;
          rate > 0 && expected > kLongestCall) {
        show(fmt::format("{:>14} {}: {} and more would take {} a call: left out\n", operation,
                         label, bytes_text(bytes), seconds_text(expected)));
        break;
      }
      const Tensor tensor = zeros(bytes / 4 / parts * parts * 4);
      rows.push_back(
          row_of(label, tensor, bytes < (1 << 20), [&, kind = algorithm] { call(tensor, kind); }));
      show(row_text(operation, rows.back()));
      rate = rows.back()["gb_per_second"].get<double>() * 1e9;
    }
  }
  return rows;
}

Json Measurement::all() {
  show(fmt::format(fmt::runtime(kColumns), "operation", "transport", "algorithm", "ranks",
                   "message", "µs", "GB/s"));
  Algorithms algorithms;
  for (const AlgorithmKind& kind : algorithm_registry()) {
    algorithms.emplace_back(kind.name, kind.algorithm);
  }
  algorithms.emplace_back("auto", Algorithm::automatic);
  Json all_reduce = all_reduces(algorithms);
  Json reduce_scatter = one_way("reduce_scatter", world_.size(), [&](const Tensor& x) {
    world_.reduce_scatter(context_, x, own_part(x));
  });
  Json all_gather = one_way("all_gather", world_.size(),
                            [&](const Tensor& x) { world_.all_gather(context_, own_part(x), x); });
  Json broadcast =
      one_way("broadcast", 1, [&](const Tensor& x) { world_.broadcast(context_, x, 0); });
  // Each member's message must be read and written once. Beyond the caches no all-reduce is
  // therefore faster than one copy of the message per member.
  const double rate = 1e-9 * copy_rate(kBeyondCaches);
  return {
      {"all_reduce", std::move(all_reduce)},        {"reduce_scatter", std::move(reduce_scatter)},
      {"all_gather", std::move(all_gather)},        {"broadcast", std::move(broadcast)},
      {"copy_gb_per_second", rate * world_.size()}, {"bound_gb_per_second", rate}};
}

Json Measurement::links() {
  // At most 1 GiB for all ranks together.
  const std::int64_t bytes = std::clamp((std::int64_t{512} << 20) / world_.size() / 4 * 4,
                                        std::int64_t{8} << 20, kBeyondCaches);
  return {{"all_reduce", all_reduces({{"auto", Algorithm::automatic}})},
          {"copy_gb_per_second", 1e-9 * copy_rate(bytes) * world_.size()}};
}

Json Measurement::all_reduces(const Algorithms& algorithms) {
  return rows_of("all_reduce", algorithms, 1, [&](const Tensor& x, Algorithm kind) {
    world_.all_reduce(context_, x, ReduceOp::sum, Async::no, kind);
  });
}

double Measurement::copy_rate(std::int64_t bytes) {
  const Tensor from = zeros(bytes), to = zeros(bytes);
  const double seconds =
      timed(context_, world_, row_seconds_, false, [&] { copy(context_, from, to); });
  return static_cast<double>(bytes) / seconds;
}

Json collectives_of(Transport& transport, const char* name, std::int64_t largest,
                    const Print& print) {
  const auto device = make_cpu_device();
  Context context(*device, 1);
  return end_all_on_error(transport, [&] {
    return Measurement(context, transport.world(), name, largest, print).all();
  });
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

Json bench_links(int ranks) {
  Json result;
  run_local(ranks, {.deterministic = false}, [&](Transport& transport) {
    const auto device = make_cpu_device();
    Context context(*device, 1);
    Json own = end_all_on_error(transport, [&] {
      return Measurement(context, transport.world(), "local", std::int64_t{8} << 20, {},
                         kLinkSeconds)
          .links();
    });
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

}  // namespace trident

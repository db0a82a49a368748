// `trident train --pretend-world`.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "planner/machine/operation_times.h"
#include "planner/plan/planned_rank.h"
#include "run/measurement/bench.h"
#include "run/measurement/measured.h"
#include "run/measurement/measured_kernels.h"

namespace trident {
namespace {

using bench::Json;

Json memory_json(const PlannedMemory& memory) {
  Json json;
  for (int c = 0; c < category_count; ++c) {
    const auto category = static_cast<Category>(c);
    if (memory.of(category) > 0) json[std::string(name_of(category))] = memory.of(category);
  }
  json["total"] = memory.peak_total;
  return json;
}

// Calls and time of a step's kernels, by name and type.
Json kernels_json(const OperationTrace& trace) {
  struct Sum {
    std::int64_t calls = 0;
    double seconds = 0;
  };
  std::map<std::string, Sum> sums;
  for (const TracedOperation& one : trace.operations()) {
    if (one.group >= 0) continue;
    Sum& sum = sums[measured_name(one)];
    ++sum.calls, sum.seconds += one.seconds;
  }
  Json kernels = Json::array();
  for (const auto& [name, sum] : sums) {
    kernels.push_back(
        {{"kernel", name}, {"calls", sum.calls}, {"milliseconds", 1e3 * sum.seconds}});
  }
  std::stable_sort(kernels.begin(), kernels.end(), [](const Json& a, const Json& b) {
    return a["milliseconds"].get<double>() > b["milliseconds"].get<double>();
  });
  return kernels;
}

Json sent_json(const OperationTrace& trace) {
  Json sent = Json::object();
  for (const TracedOperation& one : trace.operations()) {
    if (one.group < 0) continue;
    const std::string& name = trace.groups()[static_cast<std::size_t>(one.group)].name;
    sent[name] = sent.value(name, std::int64_t{0}) + one.bytes_sent;
  }
  return sent;
}

}  // namespace

Json pretend_rank(const Config& config, int rank, int iterations, Machine* machine) {
  if (rank < 0 || rank >= config.world_size()) {
    throw RequestError(
        fmt::format("--rank: {}: the world has ranks 0 to {}", rank, config.world_size() - 1));
  }
  const Architecture& architecture = *architecture_of(config);
  const RankPlanner planner(config, architecture, schedule_of(config));
  const Devices devices(config);
  const std::vector<int> pipeline = mesh_of(config.parallel).pipeline(rank);
  const auto place =
      static_cast<int>(std::find(pipeline.begin(), pipeline.end(), rank) - pipeline.begin());
  if (machine != nullptr && machine->device.gpu == devices.gpu().empty()) {
    throw RequestError(fmt::format("--machine: {} has a {}; this rank ran on \"{}\"", machine->name,
                                   machine->device.gpu ? "GPU" : "CPU", devices.text()));
  }
  const std::string device = bench::device_name(devices, config.runtime.threads_per_rank);
  if (machine != nullptr && !machine->device.kernels.empty()) {
    bench::need_same_device(*machine, device, "--machine");
  }
  const MeasuredRank measured = planner.measure(rank, devices.of(0), iterations);
  if (machine != nullptr) {
    MeasuredKernels kernels;
    kernels.take(measured.step.trace);
    kernels.enter(*machine);
    machine->device.name = device;
  }
  double seconds = 0;
  for (const TracedOperation& one : measured.step.trace.operations()) seconds += one.seconds;
  return {{"world_size", config.world_size()},
          {"rank", rank},
          {"place", place},
          {"device", devices.text()},
          {"micro_batches", planner.config().num_microbatches()},
          {"micro_batches_of_a_step", config.num_microbatches()},
          {"kernels_ms", 1e3 * seconds},
          {"kernels", kernels_json(measured.step.trace)},
          {"bytes_sent", sent_json(measured.step.trace)},
          {"memory", memory_json(measured.memory)},
          {"planned_memory", memory_json(planner.plan_memory(place).memory)}};
}

std::string pretend_rank_text(const Json& r) {
  std::string text = fmt::format(
      "rank {} of {} by itself, place {} of its pipeline, {}\n{} of a step's {} micro-batches: "
      "{:.1f} ms in kernels\n",
      r["rank"].get<int>(), r["world_size"].get<std::int64_t>(), r["place"].get<int>(),
      r["device"].get<std::string>(), r["micro_batches"].get<std::int64_t>(),
      r["micro_batches_of_a_step"].get<std::int64_t>(), r["kernels_ms"].get<double>());
  text += fmt::format("{:<34} {:>7} {:>11} {:>10}\n", "", "calls", "ms", "µs each");
  for (const Json& kernel : r["kernels"]) {
    const double ms = kernel["milliseconds"];
    const std::int64_t calls = kernel["calls"];
    text += fmt::format("{:<34} {:>7} {:>11.3f} {:>10.1f}\n", kernel["kernel"].get<std::string>(),
                        calls, ms, 1e3 * ms / static_cast<double>(calls));
  }
  for (const auto& [group, bytes] : r["bytes_sent"].items()) {
    text += fmt::format("would send {} in group {}\n", bytes_text(bytes.get<double>()), group);
  }
  text += fmt::format("{:<34} {:>12} {:>12}\n", "memory at most", "measured", "planned");
  for (const auto& [category, bytes] : r["memory"].items()) {
    text += fmt::format("{:<34} {:>12} {:>12}\n", category, bytes_text(bytes.get<double>()),
                        bytes_text(r["planned_memory"].value(category, 0.0)));
  }
  return text;
}

}  // namespace trident

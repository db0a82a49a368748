// Prints a simulated step for people and programs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "base/units.h"
#include "engine/step_timeline.h"
#include "parallel/topology.h"
#include "planner/machine/prediction_error.h"
#include "planner/simulation/failures.h"
#include "planner/simulation/step_simulation.h"
#include "scheduler/timeline.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;

// A run of a number of tokens, with failures.
struct WholeRun {
  double goodput = 1;        // fraction of the time spent on training that no failure undoes
  double save_interval = 0;  // best interval in seconds; 0: no failures
  double days = 0, device_hours = 0;
};

WholeRun whole_run(const SimulatedStep& step, const RunPlan& plan) {
  WholeRun run;
  if (plan.mtbf_hours > 0) {
    const double mtbf = plan.mtbf_hours * 3600;
    // No interval is shorter than a step.
    run.save_interval = std::max(step.seconds, best_save_interval(plan.checkpoint_seconds, mtbf));
    run.goodput = goodput(run.save_interval, plan.checkpoint_seconds, plan.restart_seconds, mtbf);
  }
  const double seconds =
      plan.tokens / static_cast<double>(step.tokens) * step.seconds / run.goodput;
  run.days = seconds / 86400;
  run.device_hours = seconds / 3600 * static_cast<double>(step.world_size);
  return run;
}

Json run_json(const SimulatedStep& step, const RunPlan& plan) {
  const WholeRun run = whole_run(step, plan);
  Json json{{"goodput", run.goodput}};
  if (plan.mtbf_hours > 0) json["save_interval_seconds"] = run.save_interval;
  if (plan.tokens > 0) {
    json["tokens"] = plan.tokens;
    json["devices"] = step.world_size;
    json["days"] = run.days;
    json["device_hours"] = run.device_hours;
  }
  return json;
}

std::string run_text(const SimulatedStep& step, const RunPlan& plan) {
  const WholeRun run = whole_run(step, plan);
  std::string text;
  if (plan.mtbf_hours > 0) {
    text +=
        fmt::format("goodput  {} with a failure every {:g} hours and a save every {}\n",
                    percent_text(run.goodput, 2), plan.mtbf_hours, seconds_text(run.save_interval));
  }
  if (plan.tokens > 0) {
    text +=
        fmt::format("run      {:.4g} tokens in {:.4g} days on {}, {:.4g} device-hours\n",
                    plan.tokens, run.days, counted(step.world_size, "device"), run.device_hours);
  }
  return text;
}

Json json_of(const SimulatedStep& step, const Machine& machine) {
  Json ranks = Json::array();
  for (std::size_t place = 0; place < step.ranks.size(); ++place) {
    const RankSeconds& rank = step.ranks[place];
    ranks.push_back({{"pipeline_rank", place},
                     {"products", rank.busy.products},
                     {"kernels", rank.busy.kernels},
                     {"communication", rank.busy.groups},
                     {"messages", rank.messages},
                     {"exposed", rank.exposed},
                     {"waiting", rank.waiting}});
  }
  const double tokens = static_cast<double>(step.tokens);
  Json json{{"prediction", true},
            {"machine", machine.name},
            {"error", error_json(machine)},
            {"world_size", step.world_size},
            {"step_seconds", step.seconds},
            {"tokens_per_second", tokens / step.seconds},
            {"tflops_per_device", step.tflops_per_device()},
            {"mfu", step.mfu()},
            {"hfu", step.hfu()},
            {"bubble_ratio", step.bubble_ratio},
            {"peak_bytes", step.peak_bytes},
            {"memory_bytes", machine.device.memory},
            {"fits", static_cast<double>(step.peak_bytes) <= machine.device.memory},
            {"communication_seconds", step.communication},
            {"communication_across_nodes", step.across},
            {"exposed_communication_seconds", step.exposed_communication},
            {"pipeline_ranks", ranks}};
  if (step.shared_devices > 0) {
    json["replayed"] = true;
    json["shared_devices"] = step.shared_devices;
    json["shared_step_seconds"] = step.shared_seconds;
  }
  return json;
}

std::string text_of(const SimulatedStep& step, const Machine& machine) {
  std::string text = fmt::format(
      "a prediction for {} on {}; {}\n"
      "step     {}, {:.4g} tokens/s\n"
      "device   {:.1f} TFLOP/s, MFU {}, HFU {}, bubble {}\n"
      "memory   {} of {} on the largest rank{}\n",
      machine.name, counted(step.world_size, "device"), error_text(machine),
      seconds_text(step.seconds), static_cast<double>(step.tokens) / step.seconds,
      step.tflops_per_device(), percent_text(step.mfu()), percent_text(step.hfu()),
      percent_text(step.bubble_ratio, 2), bytes_text(step.peak_bytes),
      bytes_text(machine.device.memory),
      static_cast<double>(step.peak_bytes) > machine.device.memory ? ": IT DOES NOT FIT" : "");
  if (step.shared_devices > 0) {
    text += fmt::format(
        "shared   the step above has a device for every rank (replayed_ms of a run); {} ranks on "
        "{} "
        "devices need at least {}\n",
        step.world_size, step.shared_devices, seconds_text(step.shared_seconds));
  }
  if (!step.communication.empty()) text += "groups   ";
  for (const auto& [group, seconds] : step.communication) {
    text += fmt::format("{} {} {}, ", group, seconds_text(seconds),
                        step.across.contains(group) ? "across nodes" : "inside nodes");
  }
  if (!step.communication.empty()) {
    text += fmt::format("of which {} are waited for\n", seconds_text(step.exposed_communication));
  }
  text += fmt::format("{:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "pipeline", "products",
                      "kernels", "groups", "messages", "exposed", "waiting");
  // Neighbours with equal values share a line.
  const auto line = [&](const RankSeconds& rank) {
    // A rounding error of a sum is printed as 0.
    const auto shown = [&](double seconds) {
      return seconds_text(std::abs(seconds) < 1e-9 * step.seconds ? 0 : seconds);
    };
    return fmt::format("{:>10} {:>10} {:>10} {:>10} {:>10} {:>10}", shown(rank.busy.products),
                       shown(rank.busy.kernels), shown(rank.busy.total() - rank.busy.compute()),
                       shown(rank.messages), shown(rank.exposed), shown(rank.waiting));
  };
  for (std::size_t first = 0; first < step.ranks.size();) {
    std::size_t last = first;
    while (last + 1 < step.ranks.size() && line(step.ranks[last + 1]) == line(step.ranks[first])) {
      ++last;
    }
    text += fmt::format(
        "{:>8} {}\n", first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last),
        line(step.ranks[first]));
    first = last + 1;
  }
  return text;
}

Timeline timeline_of(const SimulatedStep& step, const Machine& machine) {
  Timeline timeline{.title = fmt::format("Predicted for {}: {}, bubble {}; {}", machine.name,
                                         seconds_text(step.seconds),
                                         percent_text(step.bubble_ratio, 2), error_text(machine)),
                    .rows = {},
                    .events = timeline_events(step.schedule, step.simulation, 1e6)};
  for (const OverlappedSeconds& one : step.overlapped) {
    const bool update = one.group.empty();
    timeline.events.push_back(
        {.rank = one.place,
         .name =
             update ? "update" : fmt::format("{} of {} ranks", name_of(one.operation), one.group),
         .category = update ? EventCategory::optimizer
                            : category_of(group_of_traffic(one.group), one.operation),
         .start_us = 1e6 * one.start,
         .duration_us = 1e6 * one.seconds,
         .group = one.group});
  }
  return timeline;
}

}  // namespace

std::string drawn(const SimulatedStep& step, const Machine& machine, const std::string& format,
                  const RunPlan& plan) {
  const bool whole = plan.tokens > 0 || plan.mtbf_hours > 0;
  if (format == "json") {
    Json json = json_of(step, machine);
    if (whole) json["run"] = run_json(step, plan);
    return json_text(json, 2) + "\n";
  }
  if (format == "text") return text_of(step, machine) + (whole ? run_text(step, plan) : "");
  const Timeline timeline = timeline_of(step, machine);
  return format == "svg" ? timeline_svg(timeline) : chrome_trace(timeline) + "\n";
}

}  // namespace trident

// A simulated step for people and programs.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "parallel/topology.h"
#include "scheduler/timeline.h"
#include "training/engine/step_timeline.h"
#include "training/lab/failures.h"
#include "training/lab/step_simulation.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;

// Of a run of so many tokens, with failures.
struct WholeRun {
  double goodput = 1;        // part of the time that stands
  double save_interval = 0;  // seconds, the best; 0: no failures
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
        fmt::format("goodput  {:.2f}% with a failure every {:g} hours and a save every {:.0f} s\n",
                    100 * run.goodput, plan.mtbf_hours, run.save_interval);
  }
  if (plan.tokens > 0) {
    text +=
        fmt::format("run      {:.4g} tokens in {:.4g} days on {} devices, {:.4g} device-hours\n",
                    plan.tokens, run.days, step.world_size, run.device_hours);
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
  return {{"prediction", true},
          {"machine", machine.name},
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
}

std::string text_of(const SimulatedStep& step, const Machine& machine) {
  std::string text = fmt::format(
      "a prediction for {} on {} devices\n"
      "step     {:.4g} s, {:.4g} tokens/s\n"
      "device   {:.1f} TFLOP/s, MFU {:.3f}, HFU {:.3f}, bubble {:.2f}%\n"
      "memory   {:.2f} GB of {:.2f} GB on the largest rank{}\n",
      machine.name, step.world_size, step.seconds, static_cast<double>(step.tokens) / step.seconds,
      step.tflops_per_device(), step.mfu(), step.hfu(), 100 * step.bubble_ratio,
      static_cast<double>(step.peak_bytes) / 1e9, machine.device.memory / 1e9,
      static_cast<double>(step.peak_bytes) > machine.device.memory ? ": IT DOES NOT FIT" : "");
  text += "groups   ";
  for (const auto& [group, seconds] : step.communication) {
    text += fmt::format("{} {:.4g} s {}, ", group, seconds,
                        step.across.contains(group) ? "across nodes" : "inside nodes");
  }
  text += fmt::format("of which {:.4g} s are waited for\n", step.exposed_communication);
  text += fmt::format("{:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}  seconds\n", "pipeline",
                      "products", "kernels", "groups", "messages", "exposed", "waiting");
  // Neighbours that are alike are one line.
  const auto line = [](const RankSeconds& rank) {
    return fmt::format("{:>10.4g} {:>10.4g} {:>10.4g} {:>10.4g} {:>10.4g} {:>10.4g}",
                       rank.busy.products, rank.busy.kernels,
                       rank.busy.total() - rank.busy.compute(), rank.messages, rank.exposed,
                       rank.waiting);
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
  Timeline timeline{.title = fmt::format("Predicted for {}: {:.4g} s, bubble {:.2f}%", machine.name,
                                         step.seconds, 100 * step.bubble_ratio),
                    .rows = {},
                    .events = timeline_events(step.schedule, step.simulation, 1e6)};
  for (const BesideSeconds& one : step.beside) {
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

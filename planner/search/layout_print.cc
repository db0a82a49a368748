// Prints found layouts for people and programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "engine/setup/from_config.h"
#include "planner/machine/prediction_error.h"
#include "planner/search/layout_search.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;

// Lists the layout's largest losses.
std::string reasons_of(const FoundLayout& plan) {
  std::vector<std::pair<double, std::string>> parts{{plan.recomputed, "computing again"},
                                                    {plan.waiting, "bubble"},
                                                    {plan.communication, "communication"},
                                                    {plan.kernels, "other kernels"}};
  std::sort(parts.begin(), parts.end(), std::greater<>());
  std::string text;
  for (const auto& [part, name] : parts) {
    if (part < 0.01) continue;
    text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", name, 100 * part);
  }
  return text;
}

std::string axes_of(const ParallelConfig& parallel) {
  std::string text;
  for (const MeshAxis& axis : parallel.axes()) {
    if (axis.folded && (axis.size == 1 || axis.key.empty())) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis.name, axis.size);
  }
  return text;
}

// Prints the split if stages have different numbers of layers.
std::string split_of(const PipelineConfig& pipeline) {
  const std::vector<std::int64_t>& split = pipeline.layer_split;
  const auto [least, most] = std::minmax_element(split.begin(), split.end());
  if (split.empty() || *most == *least) return "";
  if (split.size() <= 16) return fmt::format(", layers {}", fmt::join(split, "+"));
  return fmt::format(", {} to {} layers a stage", *least, *most);
}

std::string states_of(const ZeroConfig& zero, const ParallelConfig& parallel,
                      const ActivationCheckpointingConfig& checkpointing) {
  std::string text = fmt::format("ZeRO {}", zero.stage);
  if (parallel.sequence_parallel) text += ", sequence parallel";
  const std::string& recompute = checkpointing.granularity;
  if (recompute != "none") text += ", " + recompute + " recomputation";
  return text;
}

std::string schedule_text(const Config& c) {
  const std::int64_t chunks = c.parallel.virtual_pipeline_model_parallel_size;
  return c.pipeline.schedule + (chunks > 1 ? fmt::format(" of {} chunks", chunks) : "");
}

std::size_t most_of_a_size(const LayoutSearch& search) {
  std::map<std::int64_t, std::size_t> of_size;
  std::size_t most = 0;
  for (const FoundLayout& plan : search.plans) {
    most = std::max(most, ++of_size[plan.config.world_size()]);
  }
  return most;
}

// Returns the fastest layouts of each number of ranks, at most `wanted` each.
std::vector<const FoundLayout*> listed(const LayoutSearch& search, const LayoutRequest& request) {
  std::vector<const FoundLayout*> plans;
  std::map<std::int64_t, std::size_t> of_size;
  for (const FoundLayout& plan : search.plans) {
    if (of_size[plan.config.world_size()]++ < request.wanted) plans.push_back(&plan);
  }
  return plans;
}

// Counts the layouts found, folded ones included.
std::size_t found_of(const LayoutSearch& search) {
  std::size_t count = 0;
  for (const FoundLayout& plan : search.plans) count += 1 + plan.near.size();
  return count;
}

Json near_json(const FoundLayout& plan) {
  Json near = Json::array();
  for (const FoundLayout& one : plan.near) {
    near.push_back(
        {{"step_seconds", one.seconds}, {"peak_bytes", one.peak_bytes}, {"set", one.set}});
  }
  return near;
}

// Lists the settings in which a near layout differs from the layout that it is folded into.
std::string differences(const FoundLayout& near, const FoundLayout& plan) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const Config &c = near.config, &of = plan.config;
  if (axes_of(c.parallel) != axes_of(of.parallel)) add(axes_of(c.parallel));
  if (schedule_text(c) != schedule_text(of)) add(schedule_text(c));
  if (c.batch.micro_batch_size != of.batch.micro_batch_size) {
    add(fmt::format("micro-batch {}", c.batch.micro_batch_size));
  }
  const std::string states = states_of(c.zero_optimization, c.parallel, c.activation_checkpointing);
  if (states != states_of(of.zero_optimization, of.parallel, of.activation_checkpointing))
    add(states);
  if (c.pipeline.layer_split != of.pipeline.layer_split &&
      split_of(c.pipeline) != split_of(of.pipeline)) {
    add(split_of(c.pipeline).empty() ? "layers split evenly" : split_of(c.pipeline).substr(2));
  }
  return text;
}

// Prints the first few near layouts of a layout in one line.
std::string near_text(const FoundLayout& plan) {
  constexpr std::size_t shown = 2;
  if (plan.near.empty()) return "";
  std::string text = "      near: ";
  for (std::size_t i = 0; i < std::min(shown, plan.near.size()); ++i) {
    const FoundLayout& one = plan.near[i];
    text += fmt::format("{}{} and {} with {}", i > 0 ? "; " : "", seconds_text(one.seconds),
                        bytes_text(one.peak_bytes), differences(one, plan));
  }
  if (plan.near.size() > shown) text += fmt::format("; {} more", plan.near.size() - shown);
  return text + "\n";
}

// Prints how many layouts were left out, and why. Reasons that differ only in numbers share a line
// with the most frequent of them.
std::string left_out_text(const LayoutSearch& search) {
  struct Line {
    std::int64_t count = 0, most = 0, others = -1;
    std::string reason;
  };
  std::map<std::string, Line> lines;
  for (const auto& [reason, count] : search.pruned) {
    if (count == 0) continue;
    std::string kind = reason;
    std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
    Line& line = lines[kind];
    line.count += count;
    ++line.others;
    if (count > line.most) line.most = count, line.reason = reason;
  }
  std::vector<Line> sorted;
  for (auto& [kind, line] : lines) sorted.push_back(std::move(line));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Line& a, const Line& b) { return a.count > b.count; });
  std::string text = "\nleft out\n";
  for (const Line& line : sorted) {
    text += fmt::format(
        "{:>8}  {}{}\n", line.count, line.reason,
        line.others > 0 ? fmt::format(" (and {} with other numbers)", line.others) : std::string());
  }
  return text;
}

// Says how much of the search was simulated.
std::string about_text(const LayoutSearch& search, const LayoutRequest& request) {
  return fmt::format(
      "predictions for {}, {} a rank; of {} {} were simulated in full, the others are {}, by "
      "their bounds\n{}\n\n",
      request.machine.name,
      bytes_text(request.memory > 0 ? static_cast<double>(request.memory)
                                    : request.machine.device.memory),
      counted(search.considered, "layout"), search.simulated,
      request.fastest ? "slower or too large" : "beaten or too large", error_text(request.machine));
}

}  // namespace

Json layouts_json(const LayoutSearch& search, const LayoutRequest& request) {
  Json plans = Json::array();
  for (const FoundLayout* one : listed(search, request)) {
    const FoundLayout& plan = *one;
    const Config& c = plan.config;
    const double tokens = static_cast<double>(c.batch.global_batch_size) *
                          static_cast<double>(c.data.sequence_length);
    Json axes;
    for (const MeshAxis& axis : c.parallel.axes()) axes[axis.name] = axis.size;
    plans.push_back({{"ranks", c.world_size()},
                     {"step_seconds", plan.seconds},
                     {"least_seconds", plan.least_seconds},
                     {"tokens_per_second", tokens / plan.seconds},
                     {"peak_bytes", plan.peak_bytes},
                     {"mfu", plan.mfu},
                     {"bubble_ratio", plan.bubble_ratio},
                     {"axes", axes},
                     {"chunks", c.parallel.virtual_pipeline_model_parallel_size},
                     {"schedule", c.pipeline.schedule},
                     {"micro_batch_size", c.batch.micro_batch_size},
                     {"zero", c.zero_optimization.stage},
                     {"sequence_parallel", c.parallel.sequence_parallel},
                     {"recomputation", c.activation_checkpointing.granularity},
                     {"layer_split", c.pipeline.layer_split},
                     {"lost",
                      {{"computing_again", plan.recomputed},
                       {"bubble", plan.waiting},
                       {"communication", plan.communication},
                       {"other_kernels", plan.kernels}}},
                     {"on_front", plan.on_front},
                     {"near", near_json(plan)},
                     {"set", plan.set},
                     {"config", Json::parse(plan.written)}});
  }
  return {{"prediction", true},
          {"machine", request.machine.name},
          {"error", error_json(request.machine)},
          {"memory_bytes", request.memory > 0 ? static_cast<double>(request.memory)
                                              : request.machine.device.memory},
          {"considered", search.considered},
          {"simulated", search.simulated},
          {"found", found_of(search)},
          {"plans", plans},
          {"nothing_on", search.nothing_on},
          {"pruned", search.pruned}};
}

std::string layouts_text(const LayoutSearch& search, const LayoutRequest& request) {
  std::string text = about_text(search, request);
  const std::vector<const FoundLayout*> shown = listed(search, request);
  std::int64_t ranks = 0;
  int number = 0;
  for (const FoundLayout* one : shown) {
    const FoundLayout& plan = *one;
    const Config& c = plan.config;
    if (c.world_size() != ranks) {
      ranks = c.world_size();
      number = 0;
      text += counted(ranks, "rank") + "\n";
    }
    text += fmt::format(
        "{:>3}{} {:>9}  MFU {:>5}  {:>10}  {}; {}, micro-batch {}; {}\n"
        "      lost: {}\n{}",
        ++number, plan.on_front ? "*" : " ", seconds_text(plan.seconds), percent_text(plan.mfu),
        bytes_text(plan.peak_bytes), axes_of(c.parallel), schedule_text(c),
        c.batch.micro_batch_size,
        states_of(c.zero_optimization, c.parallel, c.activation_checkpointing) +
            split_of(c.pipeline),
        reasons_of(plan), near_text(plan));
  }
  if (shown.size() < search.plans.size()) {
    text += fmt::format("{} more that are slower and take less memory: --plans {}\n",
                        search.plans.size() - shown.size(), most_of_a_size(search));
  }
  for (const std::int64_t none : search.nothing_on) {
    text += counted(none, "rank") + ": no layout fits, or none is valid\n";
  }
  text += request.fastest ? "* no listed layout is better in time, memory and ranks at once\n"
                          : "* no other layout is better in time, memory and ranks at once\n";
  return text + left_out_text(search);
}

}  // namespace trident

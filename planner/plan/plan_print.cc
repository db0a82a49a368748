#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/process/terminal.h"
#include "base/units.h"
#include "planner/plan/plan.h"

namespace trident {
namespace {

std::string in_words(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000'000) return fmt::format("{:.3f} trillion", value * 1e-12);
  return count < 1'000'000'000 ? fmt::format("{:.3f} million", value * 1e-6)
                               : fmt::format("{:.3f} billion", value * 1e-9);
}

std::string work_of(double flops) {
  if (flops >= 1e18) return fmt::format("{:.4g} EFLOP", flops * 1e-18);
  if (flops >= 1e15) return fmt::format("{:.4g} PFLOP", flops * 1e-15);
  return fmt::format("{:.4g} TFLOP", flops * 1e-12);
}

// Prints "2 2 2 1", and long lists as "2×126 1".
std::string runs_of(const std::vector<std::int64_t>& numbers) {
  if (numbers.size() <= 16) return fmt::format("{}", fmt::join(numbers, " "));
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end < numbers.size() && numbers[end] == numbers[i]) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : " ", numbers[i]);
    if (end - i > 1) text += fmt::format("×{}", end - i);
    i = end;
  }
  return text;
}

constexpr std::size_t kMostRows = 16;  // the most rows that are printed without grouping

// One printed line.
struct Row {
  const PlanRank* rank = nullptr;  // the rank that the line shows
  std::int64_t count = 0;
  std::vector<std::string> at;  // coordinates by axis; of a group: on the pipeline's axis
};

std::vector<Row> rows_of(const Plan& plan) {
  std::vector<Row> rows;
  for (const PlanRank& rank : plan.ranks) {
    Row& row = rows.emplace_back(Row{.rank = &rank, .count = rank.count});
    for (const int place : rank.at) row.at.push_back(std::to_string(place));
  }
  return rows;
}

// Prints "3", "0-4", "0,3-5", and more than four runs as "1,3,…,17".
std::string places_of(const std::set<int>& places) {
  std::vector<std::string> runs;
  for (auto at = places.begin(); at != places.end();) {
    const int first = *at;
    int last = first;
    while (++at != places.end() && *at == last + 1) ++last;
    runs.push_back(first == last ? std::to_string(first) : fmt::format("{}-{}", first, last));
  }
  if (runs.size() > 4) return fmt::format("{},{},…,{}", runs[0], runs[1], runs.back());
  return fmt::format("{}", fmt::join(runs, ","));
}

// Groups rows with equal numbers of layers and parameters. A group shows its places in the pipeline
// alone.
std::vector<Row> groups_of(const std::vector<Row>& rows) {
  std::vector<Row> groups;
  std::vector<std::set<int>> places;  // by group
  for (const Row& row : rows) {
    const auto stage = static_cast<int>(row.rank->pipeline);
    const auto alike = std::ranges::find_if(groups, [&](const Row& group) {
      return group.rank->layers == row.rank->layers &&
             group.rank->parameters == row.rank->parameters;
    });
    if (alike == groups.end()) {
      groups.push_back(row);
      places.push_back({stage});
      continue;
    }
    alike->count += row.count;
    if (row.rank->peak_bytes > alike->rank->peak_bytes) alike->rank = row.rank;
    places[static_cast<std::size_t>(alike - groups.begin())].insert(stage);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].at = {places_of(places[i])};
  return groups;
}

}  // namespace

nlohmann::ordered_json plan_json(const Plan& plan) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const PlanRank& rank : plan.ranks) {
    nlohmann::ordered_json& one =
        ranks.emplace_back(nlohmann::ordered_json{{"rank", rank.rank}, {"count", rank.count}});
    for (std::size_t i = 0; i < plan.axes.size(); ++i) one[plan.axes[i]] = rank.at[i];
    one["layers"] = rank.layers;
    one["parameters"] = rank.parameters;
    one["bytes"] = rank.bytes;
    one["peak_bytes"] = rank.peak_bytes;
    one["bytes_sent"] = rank.bytes_sent;
  }
  nlohmann::ordered_json by_role = nlohmann::ordered_json::object();
  for (const auto& [role, count] : plan.parameters_by_role) by_role[name_of(role)] = count;
  return {{"world_size", plan.world_size},
          {"parameters", plan.parameters},
          {"parameters_by_role", by_role},
          {"flops_per_step", plan.flops_per_step},
          {"bubble_ratio", plan.bubble_ratio},
          {"layer_split", plan.layer_split},
          {"imbalance", plan.imbalance},
          {"bubble_ratio_of_split", plan.bubble_ratio_of_split},
          {"ranks", ranks}};
}

std::string plan_text(const Plan& plan, bool all_ranks) {
  std::string text = fmt::format("{}, {} parameters, {} a step, predicted bubble {}\n",
                                 counted(plan.world_size, "rank"), in_words(plan.parameters),
                                 work_of(plan.flops_per_step), percent_text(plan.bubble_ratio));
  text += "parameters by role:";
  for (const auto& [role, count] : plan.parameters_by_role) {
    text += fmt::format("{} {} {}", role == plan.parameters_by_role.begin()->first ? "" : ",",
                        name_of(role), in_words(count));
  }
  text += "\n";
  if (plan.layer_split.size() > 1) {
    text += fmt::format(
        "layers by stage {}: the busiest rank has {} more FLOPs than the mean, bubble "
        "{}\n",
        runs_of(plan.layer_split), percent_text(plan.imbalance),
        percent_text(plan.bubble_ratio_of_split));
  }
  std::vector<Row> rows = rows_of(plan);
  const bool grouped = !all_ranks && rows.size() > kMostRows;
  if (grouped) rows = groups_of(rows);
  std::int64_t largest = 0;
  for (const Row& row : rows) largest = std::max(largest, row.rank->peak_bytes);
  const ByteUnit unit = byte_unit(static_cast<double>(largest));
  const auto shown = [&](std::int64_t bytes) { return unit.of(bytes); };
  // Peaks by category. The categories may peak at different times, so their sum is not the peak.
  std::size_t place = 4;
  for (const Row& row : rows) {
    for (const std::string& at : row.at) {
      place = std::max(place, static_cast<std::size_t>(columns_of(at)));
    }
  }
  text += fmt::format("{:>6} {:>5}", "rank", "count");
  if (grouped) {
    place = std::max(place, std::size_t{8});
    text += fmt::format(" {:>{}}", "pipeline", place);
  } else {
    for (const std::string& axis : plan.axes) text += fmt::format(" {:>{}}", axis, place);
  }
  text += fmt::format(" {:>6} {:>13}", "layers", "parameters");
  for (const char* name : {"weights", "gradients", "optimizer", "activ.", "commun.", "workspace",
                           "staging", "library"}) {
    text += fmt::format(" {:>9}", name);
  }
  text += fmt::format(" {:>10}  sent a step ({})\n", fmt::format("peak {}", unit.name), unit.name);
  for (const Row& row : rows) {
    const PlanRank& rank = *row.rank;
    text += fmt::format("{:>6} {:>5}", rank.rank, row.count);
    for (const std::string& at : row.at) text += fmt::format(" {:>{}}", at, place);
    text += fmt::format(" {:>6} {:>13}", rank.layers, rank.parameters);
    for (const char* name : {"parameter", "gradient", "optimizer", "activation", "communication",
                             "workspace", "staging", "library"}) {
      text += fmt::format(" {:>9.2f}", shown(rank.bytes.at(name)));
    }
    text += fmt::format(" {:>10.2f} ", shown(rank.peak_bytes));
    for (const auto& [group, bytes] : rank.bytes_sent) {
      if (bytes > 0) text += fmt::format(" {} {:.3g}", group, shown(bytes));
    }
    text += "\n";
  }
  if (grouped) {
    text +=
        "each line stands for the ranks with equal numbers of layers and parameters and shows the "
        "one with the largest peak; --all-ranks shows every rank\n";
  }
  return text;
}

}  // namespace trident

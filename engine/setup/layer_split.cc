#include "engine/setup/layer_split.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "engine/setup/model_costs.h"

namespace trident {

namespace {

// The times of the ranks, the busiest first.
std::vector<double> rank_times(const SplitProblem& problem,
                               const std::vector<std::int64_t>& split) {
  const auto& rank_of = problem.rank_of_stage;
  std::vector<double> times(
      static_cast<std::size_t>(1 + *std::max_element(rank_of.begin(), rank_of.end())), 0);
  auto layer = problem.each_layer.begin();
  for (std::size_t s = 0; s < split.size(); ++s) {
    double& time = times[static_cast<std::size_t>(rank_of[s])];
    time = std::accumulate(layer, layer + split[s], time);
    layer += split[s];
  }
  times[static_cast<std::size_t>(rank_of.front())] += problem.first;
  times[static_cast<std::size_t>(rank_of.back())] += problem.last;
  std::sort(times.begin(), times.end(), std::greater<>());
  return times;
}

bool fits_memory(const SplitProblem& problem, const std::vector<std::int64_t>& split) {
  if (problem.most.empty()) return true;
  std::vector<std::int64_t> left = problem.most;
  for (std::size_t s = 0; s < split.size(); ++s) {
    left[static_cast<std::size_t>(problem.rank_of_stage[s])] -= split[s];
  }
  return std::all_of(left.begin(), left.end(), [](std::int64_t layers) { return layers >= 0; });
}

// Moves one layer at a time from a stage to another, as long as this shortens the busiest ranks.
void move_layers(const SplitProblem& problem, std::vector<std::int64_t>& split) {
  for (std::vector<double> best = rank_times(problem, split);;) {
    std::vector<std::int64_t> chosen;
    for (std::size_t from = 0; from < split.size(); ++from) {
      if (split[from] == 1) continue;
      for (std::size_t to = 0; to < split.size(); ++to) {
        if (to == from) continue;
        std::vector<std::int64_t> moved = split;
        --moved[from], ++moved[to];
        std::vector<double> times = rank_times(problem, moved);
        if (times < best && fits_memory(problem, moved)) {
          best = std::move(times);
          chosen = std::move(moved);
        }
      }
    }
    if (chosen.empty()) return;
    split = std::move(chosen);
  }
}

}  // namespace

std::vector<std::int64_t> balanced_split(const SplitProblem& problem) {
  const auto& rank_of = problem.rank_of_stage;
  const std::size_t stages = rank_of.size();
  const auto ranks =
      static_cast<std::size_t>(1 + *std::max_element(rank_of.begin(), rank_of.end()));
  std::vector<std::int64_t> split(stages, 1), held(ranks, 0);
  std::vector<double> stage_time(stages, problem.layer), rank_time(ranks, 0);
  stage_time.front() += problem.first;
  stage_time.back() += problem.last;
  for (std::size_t s = 0; s < stages; ++s) {
    const auto rank = static_cast<std::size_t>(rank_of[s]);
    rank_time[rank] += stage_time[s];
    ++held[rank];
  }
  const auto has_memory = [&](std::size_t rank, std::int64_t more) {
    return problem.most.empty() || held[rank] + more <= problem.most[rank];
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (!has_memory(rank, 0)) return {};
  }
  for (auto left = problem.layers - static_cast<std::int64_t>(stages); left > 0; --left) {
    std::size_t rank = ranks;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (has_memory(r, 1) && (rank == ranks || rank_time[r] < rank_time[rank])) rank = r;
    }
    if (rank == ranks) return {};
    std::size_t stage = stages;
    for (std::size_t s = 0; s < stages; ++s) {
      if (static_cast<std::size_t>(rank_of[s]) != rank) continue;
      if (stage == stages || stage_time[s] < stage_time[stage]) stage = s;
    }
    ++split[stage], ++held[rank];
    stage_time[stage] += problem.layer;
    rank_time[rank] += problem.layer;
  }
  if (!problem.each_layer.empty()) move_layers(problem, split);
  return split;
}

std::vector<int> rank_of_stages(int ranks, int chunks, bool v_shaped) {
  std::vector<int> rank_of;
  for (int s = 0; s < ranks * chunks; ++s) {
    rank_of.push_back(v_shaped && s >= ranks ? 2 * ranks - 1 - s : s % ranks);
  }
  return rank_of;
}

std::vector<std::int64_t> automatic_split(const Config& config, const Architecture& architecture) {
  const auto chunks = static_cast<int>(config.parallel.virtual_pipeline_model_parallel_size);
  // The placement of a file or of a search is not known here, so it is taken as looped.
  const bool v_shaped = config.pipeline.schedule_file.empty() && chunks == 2 &&
                        schedule_constraints(config).chunks == ChunkRule::two;
  const auto p = static_cast<int>(config.parallel.pipeline_model_parallel_size);
  SplitProblem problem{.layers = config.model.num_layers,
                       .layer = 1,
                       .rank_of_stage = rank_of_stages(p, chunks, v_shaped)};
  try {
    const ModelCosts costs = model_costs(config, architecture);
    problem.layer = costs.mean_layer().total();
    problem.each_layer = costs.different_layers();
    problem.first = costs.embedding.total();
    problem.last = costs.head.total();
  } catch (const Error&) {
    // The sizes are inconsistent; the checks of the config report that.
  }
  return balanced_split(problem);
}

}  // namespace trident

#include "core/layer_split.h"

#include <algorithm>
#include <limits>

namespace trident {

PartCost& PartCost::operator+=(const PartCost& other) {
  forward += other.forward;
  backward_input += other.backward_input;
  backward_weight += other.backward_weight;
  return *this;
}

LayerCosts layer_costs(const Config& config) {
  const ModelConfig& m = config.model;
  const auto h = static_cast<double>(m.hidden_size), f = static_cast<double>(m.ffn_hidden_size);
  const double kv =
      h * static_cast<double>(m.num_query_groups) / static_cast<double>(m.num_attention_heads);
  const double gates = m.architecture == "llama" ? 3 : 2;  // products of h × f
  const auto s = static_cast<double>(config.data.sequence_length);
  const double tokens =
      static_cast<double>(std::max<std::int64_t>(1, config.batch.micro_batch_size)) * s;
  const double weights = 2 * tokens * (2 * h * h + 2 * h * kv + gates * h * f);
  const double attention = 2 * tokens * s * h;
  const double vocabulary = 2 * tokens * h * static_cast<double>(m.vocab_size);
  return {.layer = {weights + attention, weights + 2.5 * attention, weights},
          .embedding = {},
          .head = {3 * vocabulary, 0, 0}};
}

std::vector<PartCost> stage_costs(const LayerCosts& costs, const std::vector<std::int64_t>& split) {
  std::vector<PartCost> stages;
  for (const std::int64_t layers : split) {
    const auto n = static_cast<double>(layers);
    stages.push_back(
        {n * costs.layer.forward, n * costs.layer.backward_input, n * costs.layer.backward_weight});
  }
  stages.front() += costs.embedding;
  stages.back() += costs.head;
  return stages;
}

std::vector<std::int64_t> balanced_split(const SplitProblem& problem, std::int64_t stages) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto layers = static_cast<std::int64_t>(problem.layer_time.size());
  const auto at = [&](std::int64_t stage, std::int64_t end) {
    return static_cast<std::size_t>(stage * (layers + 1) + end);
  };
  std::vector<double> time(1, 0), memory(1, 0);  // of the layers before
  for (std::int64_t i = 0; i < layers; ++i) {
    const auto index = static_cast<std::size_t>(i);
    time.push_back(time.back() + problem.layer_time[index]);
    memory.push_back(memory.back() +
                     (problem.layer_memory.empty() ? 0 : problem.layer_memory[index]));
  }
  // Time of stage s with layers [begin, end); infinite where they don't fit.
  const auto cost = [&](std::int64_t s, std::int64_t begin, std::int64_t end) {
    const auto sum = [&](const std::vector<double>& before) {
      return before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(begin)];
    };
    if (!problem.layer_memory.empty() &&
        sum(memory) + problem.base_memory[static_cast<std::size_t>(s)] > problem.limit) {
      return infinity;
    }
    return sum(time) + (s == 0 ? problem.first : 0) + (s + 1 == stages ? problem.last : 0);
  };
  // best[s][end]: of stages 0 ... s over layers [0, end). First the slowest stage alone, then the
  // sum of squares of those splits whose slowest stage is no slower.
  double slowest = infinity;
  std::vector<std::int64_t> begin_of;
  for (const bool squares : {false, true}) {
    std::vector<double> best(static_cast<std::size_t>(stages * (layers + 1)), infinity);
    begin_of.assign(best.size(), -1);
    for (std::int64_t s = 0; s < stages; ++s) {
      for (std::int64_t end = s + 1; end <= layers - (stages - 1 - s); ++end) {
        for (std::int64_t begin = s; begin < (s == 0 ? 1 : end); ++begin) {
          const double before = s == 0 ? 0 : best[at(s - 1, begin)];
          const double own = cost(s, begin, end);
          if (squares && own > slowest * (1 + 1e-12)) continue;
          const double value = squares ? before + own * own : std::max(before, own);
          if (value < best[at(s, end)]) {
            best[at(s, end)] = value;
            begin_of[at(s, end)] = begin;
          }
        }
      }
    }
    if (!squares) slowest = best[at(stages - 1, layers)];
    if (slowest == infinity) return {};
  }
  std::vector<std::int64_t> split(static_cast<std::size_t>(stages));
  std::int64_t end = layers;
  for (std::int64_t s = stages; s-- > 0;) {
    const std::int64_t begin = begin_of[at(s, end)];
    split[static_cast<std::size_t>(s)] = end - begin;
    end = begin;
  }
  return split;
}

}  // namespace trident

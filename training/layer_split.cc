#include "training/layer_split.h"

#include <algorithm>

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
  const std::string& recomputed = config.activation_checkpointing.granularity;
  const double again = recomputed == "full"        ? weights + attention
                       : recomputed == "selective" ? attention
                                                   : 0;
  return {.layer = {weights + attention, weights + 2.5 * attention + again, weights},
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
  const auto has_room = [&](std::size_t rank, std::int64_t more) {
    return problem.most.empty() || held[rank] + more <= problem.most[rank];
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (!has_room(rank, 0)) return {};
  }
  for (auto left = problem.layers - static_cast<std::int64_t>(stages); left > 0; --left) {
    std::size_t rank = ranks;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (has_room(r, 1) && (rank == ranks || rank_time[r] < rank_time[rank])) rank = r;
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
  return split;
}

std::vector<int> rank_of_stages(int ranks, int chunks, bool v_shaped) {
  std::vector<int> rank_of;
  for (int s = 0; s < ranks * chunks; ++s) {
    rank_of.push_back(v_shaped && s >= ranks ? 2 * ranks - 1 - s : s % ranks);
  }
  return rank_of;
}

}  // namespace trident

// consumer DIR: trains the bag model over 4 ranks on a text that it writes into DIR. The exit code
// is 0 if the loss falls on data 2 × pipeline 2 in a schedule of its own, and if on tensor 2 ×
// pipeline 2 the measurements equal the plan: the bytes of each group, and the bubble.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "bag.h"
#include "engine/setup/registry.h"
#include "planner/plan/plan.h"
#include "run/loop/trainer.h"
#include "settings/config.h"

namespace {

constexpr const char* config_text = R"({
  "model": {"architecture": "bag", "num_layers": 4, "hidden_size": 32, "num_attention_heads": 2},
  "parallel": {"data_parallel_size": 2, "pipeline_model_parallel_size": 2},
  "pipeline": {"schedule": "latest_first"},
  "batch": {"global_batch_size": 16, "micro_batch_size": 2},
  "optimizer": {"params": {"lr": 0.01}},
  "data": {"train": [{"path": "text.txt"}], "sequence_length": 32},
  "training": {"train_iters": 60},
  "logging": {"dir": "run"}
})";

// A user's own schedule: GPipe with the forwards of the last micro-batch first.
trident::Schedule latest_first(const trident::ScheduleRequest& request) {
  trident::Schedule schedule = trident::gpipe(request.stages, request.microbatches);
  for (auto& list : schedule.ranks) std::reverse(list.begin(), list.begin() + request.microbatches);
  return schedule;
}

trident::LoadedConfig config_in(const std::string& directory, std::vector<std::string> overrides) {
  trident::Registry registry = trident::built_in_registry();
  registry.architectures["bag"] = make_bag();
  registry.schedules.push_back({{.name = "latest_first"}, latest_first});
  overrides.push_back("data.train.0.path=" + directory + "/text.txt");
  overrides.push_back("logging.dir=" + directory + "/run");
  return trident::parse_config(config_text, overrides,
                               {.constraints = trident::constraints_of(registry)});
}

bool loss_falls(const std::string& directory) {
  const trident::LoadedConfig loaded = config_in(directory, {});
  trident::TrainerHooks hooks;
  hooks.on_iteration = [](trident::IterationMetrics& metrics) {
    metrics.extra["bits_per_byte"] = metrics.loss / std::log(2.0);
  };
  const trident::TrainingSummary summary =
      trident::train_local(trident::prepare_training(loaded), hooks);
  const double first = summary.history.front().loss, last = summary.history.back().loss;
  std::printf("loss %.3f at first, %.3f after %zu iterations\n", first, last,
              summary.history.size());
  return std::abs(first - std::log(256.0)) < 0.5 && last < 0.6 * first;
}

// The first stage has two layers and the second six. The bubble differs from that of equal stages,
// and depends on the cost of a layer relative to the head.
bool plan_is_right(const std::string& directory) {
  const trident::LoadedConfig loaded = config_in(
      directory, {"parallel.data_parallel_size=1", "parallel.tensor_model_parallel_size=2",
                  "pipeline.schedule=1f1b", "model.num_layers=8", "pipeline.layer_split=[2,6]",
                  "model.hidden_size=128", "training.train_iters=12", "logging.overwrite=true"});
  const trident::Plan plan =
      trident::make_plan(loaded.config, *trident::architecture_of(loaded.config));
  std::map<std::string, std::int64_t> planned;
  for (const trident::PlanRank& rank : plan.ranks) {
    for (const auto& [group, bytes] : rank.bytes_sent) planned[group] += rank.count * bytes;
  }
  const trident::TrainingSummary summary =
      trident::train_local(trident::prepare_training(loaded), {});
  std::vector<double> bubbles;
  bool equal = true;
  for (const trident::IterationMetrics& step : summary.history) {
    bubbles.push_back(step.bubble_ratio);
    equal = equal && step.bytes_sent == planned;
  }
  std::nth_element(bubbles.begin(), bubbles.begin() + 6, bubbles.end());
  for (const auto& [group, bytes] : planned) {
    std::printf("%s: %lld bytes a step planned, %lld sent\n", group.c_str(),
                static_cast<long long>(bytes),
                static_cast<long long>(summary.history.back().bytes_sent.at(group)));
  }
  std::printf("bubble %.3f planned (%.3f with equal stages), %.3f measured\n",
              plan.bubble_ratio_of_split, plan.bubble_ratio, bubbles[6]);
  return equal && std::abs(bubbles[6] - plan.bubble_ratio_of_split) < 0.08;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    std::filesystem::remove_all(argv[1]);
    std::filesystem::create_directories(argv[1]);
    const std::string directory = argv[1];
    std::ofstream text(directory + "/text.txt");
    for (int i = 0; i < 300; ++i) text << "and the light shineth in darkness; ";
    text.close();
    return loss_falls(directory) && plan_is_right(directory) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}

// consumer DIR: trains the bag model over 4 ranks (data 2 × pipeline 2), in a schedule of its own,
// on a text that it writes into DIR; exit code 0 if the loss falls.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include "bag.h"
#include "config/config.h"
#include "training/kinds.h"
#include "training/trainer.h"

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

// A schedule of the user's own: GPipe with the forwards of the last micro-batch first.
trident::Schedule latest_first(const trident::ScheduleRequest& request) {
  trident::Schedule schedule = trident::gpipe(request.stages, request.microbatches);
  for (auto& list : schedule.ranks) std::reverse(list.begin(), list.begin() + request.microbatches);
  return schedule;
}

bool loss_falls(const std::string& directory) {
  std::ofstream text(directory + "/text.txt");
  for (int i = 0; i < 300; ++i) text << "and the light shineth in darkness; ";
  text.close();

  trident::Kinds kinds = trident::built_in_kinds();
  kinds.architectures["bag"] = make_bag();
  kinds.schedules.push_back({{.name = "latest_first"}, latest_first});
  const trident::LoadedConfig loaded = trident::parse_config(
      config_text,
      {"data.train.0.path=" + directory + "/text.txt", "logging.dir=" + directory + "/run"},
      {.rules = trident::rules_of(kinds)});
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    std::filesystem::remove_all(argv[1]);
    std::filesystem::create_directories(argv[1]);
    return loss_falls(argv[1]) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}

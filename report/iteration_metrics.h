// What a run tells of an iteration.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trident {

// One line of metrics.jsonl; on world rank 0.
struct IterationMetrics {
  std::int64_t iteration = 0;  // from 1
  double loss = 0, grad_norm = 0, learning_rate = 0;
  std::int64_t consumed_tokens = 0;
  std::int64_t batch_size = 0;  // samples of this iteration
  double epoch = 0;             // passes over the training data that the samples so far make
  double wall_time = 0;         // when it ended: seconds since 1970, by rank 0's clock
  double iteration_time_ms = 0, tokens_per_second = 0, tflops = 0, mfu = 0;
  double bubble_ratio = 0, bubble_ratio_wall = 0, bubble_predicted = 0;
  std::vector<double> rank_bubble_ratio;  // of each pipeline rank
  std::map<std::string, std::int64_t> bytes_sent, peak_memory;
  std::map<std::string, double> parts_ms;  // StepFigures
  std::optional<double> replayed_ms;       // StepFigures
  double loss_scale = 1;
  bool skipped = false;
  // Updates of the weights that were evaluated and are saved; asynchronous schedules only.
  std::optional<std::int64_t> weight_version;
  // Where checkpoints are saved: how long rank 0 has waited for them since the iteration before,
  // and how many have failed in all.
  std::optional<double> save_pause_ms;
  std::optional<std::int64_t> failed_saves;
  std::vector<std::pair<std::string, double>> validation_loss;  // by set, "" for the only one
  std::map<std::string, double> extra;  // a user's own, added by on_iteration
};

// A line of metrics.jsonl, in the order of its keys, and back: what a line lacks keeps its default,
// what isn't a number is NaN (a loss that was written as null), further numbers are `extra`.
nlohmann::ordered_json metrics_line(const IterationMetrics&);
IterationMetrics metrics_of_line(const nlohmann::ordered_json&);

}  // namespace trident

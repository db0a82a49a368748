// The metrics of an iteration, and their line in metrics.jsonl.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/statistics.h"

namespace trident {

// One line of metrics.jsonl, which world rank 0 writes.
struct IterationMetrics {
  std::int64_t iteration = 0;  // from 1
  double loss = 0, grad_norm = 0, learning_rate = 0;
  std::int64_t consumed_tokens = 0;
  std::int64_t batch_size = 0;  // samples of this iteration
  double epoch = 0;             // passes over the training data, over the samples so far
  double wall_time = 0;         // its end: seconds since 1970, by rank 0's clock
  double iteration_time_ms = 0, tokens_per_second = 0, tflops = 0, mfu = 0;
  double bubble_ratio = 0, bubble_ratio_wall = 0, bubble_predicted = 0;
  std::vector<double> rank_bubble_ratio;  // of each pipeline rank
  std::map<std::string, std::int64_t> bytes_sent, peak_memory;
  std::map<std::string, double> parts_ms;  // StepFigures
  std::optional<double> replayed_ms;       // StepFigures
  double loss_scale = 1;
  bool skipped = false;
  // The number of updates of the weights that were evaluated and are saved; asynchronous schedules
  // only.
  std::optional<std::int64_t> weight_version;
  std::optional<std::int64_t> counted_tokens;  // in the loss, where some may not count
  // If checkpoints are saved: the time that rank 0 has waited for saves since the previous
  // iteration, and the total number of failed saves.
  std::optional<double> save_pause_ms;
  std::optional<std::int64_t> failed_saves;
  std::vector<std::pair<std::string, double>> validation_loss;  // by set, "" for the only one
  StepStatistics statistics;                                    // of the model's modules
  std::map<std::string, double> extra;  // a user's own metrics, added by on_iteration
};

// Converts metrics to a line of metrics.jsonl, in the order of its keys, and back. A key that the
// line lacks keeps its default. A value that isn't a number is NaN (a loss that was written as
// null). Further numbers go to `extra`.
nlohmann::ordered_json metrics_line(const IterationMetrics&);
IterationMetrics metrics_of_line(const nlohmann::ordered_json&);

}  // namespace trident

// Auxiliary losses and statistics (counts such as the tokens of each expert, means) that modules
// report in addition to forward's tensor. A family lists them (Architecture::statistics). Its
// modules add to them in forward, each rank its own part; the step check adds up all ranks
// (engine/step_check.h). The sums are integers and don't depend on the order of additions. So
// pipeline stages, schedule, ZeRO stage and transport change no bit of them; other layouts change
// the summands.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/context.h"

namespace trident {

enum class StatisticKind {
  auxiliary_loss,  // a term of the objective, which is the mean over tokens of loss + auxiliary
                   // losses
  mean,            // of a value of each token
  count,           // integers
};

struct Statistic {
  std::string name;  // a key of StepStatistics::auxiliary_losses or ::statistics
  StatisticKind kind = StatisticKind::count;
  std::int64_t layer = 0;  // of the head: the number of layers
  std::int64_t size = 1;   // the number of integers of a count; 1 for the other kinds
};

// The statistics of a step over all layers and ranks.
struct StepStatistics {
  std::map<std::string, double> auxiliary_losses;  // summed over layers, mean over tokens
  // By layer; a layer that doesn't report this has no values.
  std::map<std::string, std::vector<std::vector<double>>> statistics;

  bool operator==(const StepStatistics&) const = default;
};

// Where a model's statistics lie in one array of 64-bit integers.
class StatisticTable {
 public:
  StatisticTable() = default;
  // Turns the sums of a step of `tokens` tokens into the reported values.
  using Derive = std::function<void(double tokens, StepStatistics&)>;
  // Throws Error if one is listed twice, has no size, or belongs to a negative layer.
  explicit StatisticTable(const std::vector<Statistic>&, Derive derive = {});
  std::int64_t elements() const { return elements_; }
  struct Range {
    StatisticKind kind = StatisticKind::count;
    std::int64_t begin = 0, elements = 0;
  };
  // Throws Error if the table lacks it.
  const Range& range_of(const std::string& name, std::int64_t layer) const;
  // The statistics in the sum of all ranks' arrays. `tokens`: those of the global batch.
  StepStatistics values(std::span<const std::int64_t> sums, double tokens) const;

 private:
  std::map<std::pair<std::string, std::int64_t>, Range> ranges_;
  std::int64_t elements_ = 0;
  Derive derive_;
};

// This rank's sums, to which the modules add. Training alone records them: evaluation, generation,
// and the forward that activation recomputation repeats do not.
class StatisticSums {
 public:
  StatisticSums() = default;
  // `sums`: (table.elements()) i64. The table must outlive it.
  StatisticSums(const StatisticTable& table, Tensor sums)
      : table_(&table), sums_(std::move(sums)) {}
  bool is_recording() const { return sums_.defined(); }

  // Adds any number of values, fp64 or of a type that converts to it, to an auxiliary loss or a
  // mean: those of each token of this rank, or fewer that have the same sum. (So a loss of a sample
  // counts as often as the sample has tokens.)
  void add(Context&, const std::string& name, std::int64_t layer, const Tensor& values) const;
  // Adds to a count. counts: (size) i64.
  void count(Context&, const std::string& name, std::int64_t layer, const Tensor& counts) const;

 private:
  Tensor sums_of(const std::string& name, std::int64_t layer, bool is_count) const;

  const StatisticTable* table_ = nullptr;
  Tensor sums_;
};

}  // namespace trident

// The figures that modules report beside forward's tensor: auxiliary losses, and counts and means
// such as the tokens of each expert. A family lists them (Architecture::statistics). Its modules
// add to them in forward, each rank its own part; the step check adds up all ranks
// (engine/step_check.h). The sums are exact integers, so they are equal for every order of
// additions, and therefore in all layouts.
#pragma once

#include <cstdint>
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
  std::string name;  // a key of IterationMetrics::auxiliary_losses or of its statistics
  StatisticKind kind = StatisticKind::count;
  std::int64_t layer = 0;
  std::int64_t size = 1;  // the number of integers of a count; 1 for the other kinds
};

// The figures of a step over all layers and ranks.
struct StepStatistics {
  std::map<std::string, double> auxiliary_losses;  // summed over layers, mean over tokens
  // By layer; a layer without this figure has no values.
  std::map<std::string, std::vector<std::vector<double>>> statistics;

  bool operator==(const StepStatistics&) const = default;
};

// The places of a model's figures in one array of 64-bit integers.
class StatisticTable {
 public:
  StatisticTable() = default;
  // Throws Error if a figure is listed twice, has no size, or belongs to a negative layer.
  explicit StatisticTable(const std::vector<Statistic>&);
  std::int64_t elements() const { return elements_; }
  struct Place {
    StatisticKind kind = StatisticKind::count;
    std::int64_t begin = 0, elements = 0;
  };
  // Throws Error if there is no such figure.
  const Place& of(const std::string& name, std::int64_t layer) const;
  // The figures of summed arrays. `tokens`: those of the global batch.
  StepStatistics values(std::span<const std::int64_t> sums, double tokens) const;

 private:
  std::map<std::pair<std::string, std::int64_t>, Place> places_;
  std::int64_t elements_ = 0;
};

// This rank's sums, to which the modules add. They are wanted in training alone: evaluation,
// generation, and the forward that activation recomputation repeats pass none.
class StatisticSums {
 public:
  StatisticSums() = default;
  // `sums`: (table.elements()) i64. The table must outlive it.
  StatisticSums(const StatisticTable& table, Tensor sums)
      : table_(&table), sums_(std::move(sums)) {}
  bool wanted() const { return sums_.defined(); }
  const Tensor& sums() const { return sums_; }

  // Adds values of any number, fp64 or a type that converts to it, to an auxiliary loss or a mean:
  // the loss or value of each token of this rank, or fewer values that have the same sum.
  void add(Context&, const std::string& name, std::int64_t layer, const Tensor& values) const;
  // Adds to a count. counts: (size) i64.
  void count(Context&, const std::string& name, std::int64_t layer, const Tensor& counts) const;

 private:
  Tensor place(const std::string& name, std::int64_t layer, bool is_count) const;

  const StatisticTable* table_ = nullptr;
  Tensor sums_;
};

}  // namespace trident

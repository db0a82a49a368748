// Helpers that make the rows of the field table, and the functions that make its sections. Private
// to settings/.
#pragma once

#include "settings/fields.h"

namespace trident::config_detail {

template <class S, class T>
Member<T> in(S Config::*section, T S::*member) {
  return [=](Config& config) -> T& { return config.*section.*member; };
}

// The largest values keep every product of sizes in the checks within 64 bits.
inline constexpr double kMaxRanks = 1e6;
inline constexpr double kMaxIterations = 1e12;

inline Range from(double min, double max) {
  return {.min = min, .max = max};
}
inline Range above(double min) {
  return {.min = min, .above_min = true};
}
inline Range fraction() {
  return {.min = 0.0, .max = 1.0, .below_max = true};
}

// Bounds, in round figures, for numbers that kernels take as fp32. They keep a number within fp32's
// normal range: a smaller number would become 0, a larger one infinite, and a fraction nearer to 1
// would become 1.
inline constexpr double kLeast = 1.2e-38, kMost = 3.4e38, kBelowOne = 0.9999999;

inline Range fp32() {
  return {.min = kLeast, .max = kMost};
}
inline Range fp32_or_zero() {
  return {.min = kLeast, .max = kMost, .or_zero = true};
}
inline Range fp32_fraction() {
  return {.min = kLeast, .max = kBelowOne, .or_zero = true};
}

// "BEFORE NAME DOC, NAME DOC or NAME DOC AFTER" for the rows of a table.
template <class Row>
Text described(const char* before, std::vector<Row> ConfigConstraints::*rows, const char* between,
               const char* before_last, const char* after) {
  return [=](const ConfigConstraints& constraints) {
    std::string text = before;
    const std::vector<Row>& table = constraints.*rows;
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (i > 0) text += i + 1 == table.size() ? before_last : between;
      text += table[i].name;
      if (!table[i].doc.empty()) text += " " + table[i].doc;
    }
    return text + after;
  };
}

std::vector<Field> model_fields();
std::vector<Field> moe_fields();
std::vector<Field> parallel_fields();
std::vector<Field> pipeline_fields();
std::vector<Field> batch_fields();
std::vector<Field> zero_fields();
std::vector<Field> precision_fields();
std::vector<Field> activation_checkpointing_fields();
std::vector<Field> optimizer_fields();
std::vector<Field> scheduler_fields();
std::vector<Field> data_fields();
std::vector<Field> training_fields();
std::vector<Field> checkpoint_fields();
std::vector<Field> runtime_fields();
std::vector<Field> logging_fields();

}  // namespace trident::config_detail

#include "report/iteration_metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace trident {
namespace {

using Json = nlohmann::ordered_json;

Json validation_json(const IterationMetrics& m) {
  if (m.validation_loss.size() == 1 && m.validation_loss[0].first.empty()) {
    return m.validation_loss[0].second;
  }
  Json sets = Json::object();
  for (const auto& [name, loss] : m.validation_loss) sets[name] = loss;
  return sets;
}

// JSON has no NaN, so a value that is not a number is NaN here.
double number(const Json& value) {
  return value.is_number() ? value.get<double>() : NAN;
}

std::int64_t whole(const Json& value) {
  const double number = trident::number(value);
  return std::abs(number) < 9e18 ? static_cast<std::int64_t>(number) : 0;
}

// Counts are written as integers.
Json plain_number(double value) {
  const bool is_whole = std::abs(value) < 1e15 && value == std::trunc(value);
  return is_whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

Json statistics_json(const StepStatistics& all) {
  Json figures = Json::object();
  for (const auto& [name, layers] : all.statistics) {
    Json& list = figures[name] = Json::array();
    for (const std::vector<double>& values : layers) {
      Json& layer = list.emplace_back(Json::array());
      for (const double value : values) layer.push_back(plain_number(value));
    }
  }
  return figures;
}

void read_statistics(const Json& value, StepStatistics& all) {
  for (const auto& [name, layers] : value.items()) {
    if (!layers.is_array()) continue;
    auto& list = all.statistics[name];
    for (const Json& layer : layers) {
      std::vector<double>& values = list.emplace_back();
      if (!layer.is_array()) continue;
      for (const Json& one : layer) values.push_back(number(one));
    }
  }
}

template <class T, class Convert>
void read_map(const Json& value, std::map<std::string, T>& into, Convert convert) {
  if (!value.is_object()) return;
  for (const auto& [name, one] : value.items()) into[name] = convert(one);
}

void read_validation(const Json& value, IterationMetrics& m) {
  if (value.is_object()) {
    for (const auto& [name, loss] : value.items())
      m.validation_loss.emplace_back(name, number(loss));
  } else {
    m.validation_loss.emplace_back("", number(value));
  }
}

}  // namespace

Json metrics_line(const IterationMetrics& m) {
  Json line{{"iteration", m.iteration},
            {"loss", m.loss},
            {"grad_norm", m.grad_norm},
            {"learning_rate", m.learning_rate},
            {"consumed_tokens", m.consumed_tokens},
            {"batch_size", m.batch_size},
            {"epoch", m.epoch},
            {"wall_time", m.wall_time},
            {"iteration_time_ms", m.iteration_time_ms},
            {"tokens_per_second", m.tokens_per_second},
            {"tflops", m.tflops},
            {"mfu", m.mfu},
            {"bubble_ratio", m.bubble_ratio},
            {"bubble_ratio_wall", m.bubble_ratio_wall},
            {"bubble_predicted", m.bubble_predicted},
            {"rank_bubble_ratio", m.rank_bubble_ratio},
            {"bytes_sent", m.bytes_sent},
            {"peak_memory", m.peak_memory},
            {"parts_ms", m.parts_ms},
            {"replayed_ms", m.replayed_ms ? Json(*m.replayed_ms) : Json(nullptr)},
            {"loss_scale", m.loss_scale},
            {"skipped", m.skipped}};
  if (m.weight_version) line["weight_version"] = *m.weight_version;
  if (m.counted_tokens) line["counted_tokens"] = *m.counted_tokens;
  if (m.save_pause_ms) line["save_pause_ms"] = *m.save_pause_ms;
  if (m.failed_saves) line["failed_saves"] = *m.failed_saves;
  if (!m.validation_loss.empty()) line["validation_loss"] = validation_json(m);
  const StepStatistics& own = m.statistics;
  if (!own.auxiliary_losses.empty()) line["auxiliary_losses"] = own.auxiliary_losses;
  if (!own.statistics.empty()) line["statistics"] = statistics_json(own);
  for (const auto& [name, value] : m.extra) line[name] = value;
  return line;
}

IterationMetrics metrics_of_line(const Json& line) {
  IterationMetrics m;
  for (const auto& [name, value] : line.items()) {
    const std::pair<const char*, double*> numbers[] = {{"loss", &m.loss},
                                                       {"grad_norm", &m.grad_norm},
                                                       {"learning_rate", &m.learning_rate},
                                                       {"epoch", &m.epoch},
                                                       {"wall_time", &m.wall_time},
                                                       {"iteration_time_ms", &m.iteration_time_ms},
                                                       {"tokens_per_second", &m.tokens_per_second},
                                                       {"tflops", &m.tflops},
                                                       {"mfu", &m.mfu},
                                                       {"bubble_ratio", &m.bubble_ratio},
                                                       {"bubble_ratio_wall", &m.bubble_ratio_wall},
                                                       {"bubble_predicted", &m.bubble_predicted},
                                                       {"loss_scale", &m.loss_scale}};
    bool known = false;
    for (const auto& [key, into] : numbers) {
      if (name != key) continue;
      *into = number(value);
      known = true;
    }
    if (known) continue;
    if (name == "iteration") {
      m.iteration = whole(value);
    } else if (name == "consumed_tokens") {
      m.consumed_tokens = whole(value);
    } else if (name == "batch_size") {
      m.batch_size = whole(value);
    } else if (name == "skipped") {
      m.skipped = value.is_boolean() && value.get<bool>();
    } else if (name == "rank_bubble_ratio") {
      for (const Json& one : value) m.rank_bubble_ratio.push_back(number(one));
    } else if (name == "bytes_sent") {
      read_map(value, m.bytes_sent, whole);
    } else if (name == "peak_memory") {
      read_map(value, m.peak_memory, whole);
    } else if (name == "replayed_ms") {
      if (value.is_number()) m.replayed_ms = number(value);
    } else if (name == "parts_ms") {
      read_map(value, m.parts_ms, number);
    } else if (name == "weight_version") {
      m.weight_version = whole(value);
    } else if (name == "counted_tokens") {
      m.counted_tokens = whole(value);
    } else if (name == "save_pause_ms") {
      m.save_pause_ms = number(value);
    } else if (name == "failed_saves") {
      m.failed_saves = whole(value);
    } else if (name == "validation_loss") {
      read_validation(value, m);
    } else if (name == "auxiliary_losses" && value.is_object()) {
      read_map(value, m.statistics.auxiliary_losses, number);
    } else if (name == "statistics" && value.is_object()) {
      read_statistics(value, m.statistics);
    } else if (value.is_number()) {
      m.extra[name] = number(value);
    }
  }
  return m;
}

}  // namespace trident

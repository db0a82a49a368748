#include "report/run_facts.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/files/json.h"
#include "base/units.h"
#include "report/run_speed.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;
using History = std::vector<IterationMetrics>;

std::string duration(double seconds) {
  seconds = std::min(seconds, 1e12);
  const auto s = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (s >= 86400) return fmt::format("{} d {} h", s / 86400, s % 86400 / 3600);
  if (s >= 3600) return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
  if (s >= 60) return fmt::format("{} min {} s", s / 60, s % 60);
  if (seconds < 1) return fmt::format("{:.0f} ms", 1e3 * std::max(0.0, seconds));
  return fmt::format("{:.1f} s", seconds);
}

std::string in_words(double value) {
  if (value >= 1e12) return fmt::format("{:.4g} trillion", value * 1e-12);
  if (value >= 1e9) return fmt::format("{:.4g} billion", value * 1e-9);
  if (value >= 1e6) return fmt::format("{:.4g} million", value * 1e-6);
  return fmt::format("{:.0f}", value);
}

std::string losses(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f} (perplexity {:.4g})", loss, std::exp(loss))
                             : "not finite";
}

// Collects the rows of the table of facts.
class Facts {
 public:
  explicit Facts(const ReportedRun& run)
      : run_(run), config_(ordered_json_or_null(run.config)), history_(run.history) {}

  Json list() {
    model();
    outcome();
    when();
    speed();
    for (const char* name : {"machine", "device", "threads", "host", "version", "command"}) {
      add(name, of_start(name));
    }
    return rows_;
  }

 private:
  void add(const char* name, const std::string& value) {
    if (!value.empty()) rows_.push_back({name, value});
  }
  Json at(const char* path) const {
    const Json::json_pointer pointer(path);
    return config_.is_object() && config_.contains(pointer) ? config_[pointer] : Json();
  }
  std::int64_t number(const char* path) const {
    const Json value = at(path);
    return value.is_number_integer() ? value.get<std::int64_t>() : 0;
  }
  std::string text(const char* path) const {
    const Json value = at(path);
    if (value.is_string()) return value.get<std::string>();
    return value.is_null() ? "" : json_text(value);
  }

  void model() {
    std::string parameters;
    if (run_.about.parameters > 0) {
      parameters = ", " + in_words(static_cast<double>(run_.about.parameters)) + " parameters";
    }
    add("model", fmt::format("{}, {}, hidden size {}{}", text("/model/architecture"),
                             counted(number("/model/num_layers"), "layer"),
                             number("/model/hidden_size"), parameters));
    const std::int64_t chunks = number("/parallel/virtual_pipeline_model_parallel_size");
    std::string layout = of_start("layout");
    if (chunks > 1) layout += (layout.empty() ? "" : ", ") + counted(chunks, "chunk") + " a rank";
    add("layout", layout + fmt::format("{}ZeRO {}", layout.empty() ? "" : ", ",
                                       number("/zero_optimization/stage")));
    const std::string file = text("/pipeline/schedule_file");
    add("schedule",
        fmt::format("{}, {}", file.empty() ? text("/pipeline/schedule") : file,
                    counted(number("/batch/gradient_accumulation_steps"), "micro-batch")));
    std::string batch =
        fmt::format("{} of {} tokens", counted(number("/batch/global_batch_size"), "sequence"),
                    number("/data/sequence_length"));
    if (const Json ramp = at("/batch/rampup_batch_size"); ramp.is_array() && ramp.size() == 3) {
      batch += fmt::format(", from {} on", json_text(ramp[0]));
    }
    add("batch", batch);
    add("precision", text("/precision/dtype"));
    add("optimizer", fmt::format("{}, rate {} ({}), weight decay {}", text("/optimizer/type"),
                                 text("/optimizer/params/lr"), text("/scheduler/type"),
                                 text("/optimizer/params/weight_decay")));
    std::string data;
    if (const Json sources = at("/data/train"); sources.is_array()) {
      for (const Json& one : sources) {
        if (!one.is_object() || !one.value("path", Json()).is_string()) continue;
        data += (data.empty() ? "" : ", ") + one["path"].get<std::string>();
      }
    }
    add("data", data);
    add("seed", text("/training/seed"));
  }

  void outcome() {
    if (history_.empty()) return;
    const IterationMetrics& last = history_.back();
    add("iterations", fmt::format("{} of {}", last.iteration, number("/training/train_iters")));
    std::string tokens = in_words(static_cast<double>(last.consumed_tokens));
    if (last.epoch > 0) tokens += fmt::format(" ({:.3g} epochs)", last.epoch);
    add("tokens", tokens);
    add("final loss", losses(last.loss));
    std::map<std::string, std::pair<double, std::int64_t>> best;
    for (const IterationMetrics& m : history_) {
      for (const auto& [name, loss] : m.validation_loss) {
        const auto found = best.find(name);
        if (!std::isfinite(loss) || (found != best.end() && found->second.first <= loss)) continue;
        best[name] = {loss, m.iteration};
      }
    }
    for (const auto& [name, found] : best) {
      add(("best validation" + (name.empty() ? "" : " " + name)).c_str(),
          fmt::format("{} at iteration {}", losses(found.first), found.second));
    }
  }

  void when() {
    if (run_.about.starts.empty()) return;
    const double begin = run_.about.starts.front().time;
    if (!(begin >= 0 && begin < 1e11)) return;
    add("started",
        fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(static_cast<std::time_t>(begin))));
    double trained = 0;
    for (const IterationMetrics& m : history_) trained += 1e-3 * m.iteration_time_ms;
    std::string took;
    if (!history_.empty() && history_.back().wall_time > begin) {
      took = duration(history_.back().wall_time - begin) + ", ";
    }
    add("took", fmt::format("{}{} in iterations", took, duration(trained)));
    if (run_.about.starts.size() > 1) {
      add("starts", std::to_string(run_.about.starts.size()));
    }
  }

  void speed() {
    const RunRates rates(run_.about, history_);
    const RunSpeed speed = speed_of(history_, rates.function());
    if (speed.iterations == 0) return;
    add("speed", fmt::format("{:.0f} tokens/s, {} an iteration (mean{})", speed.tokens_per_second,
                             seconds_text(1e-3 * speed.step_ms),
                             speed.without_first ? " without the first" : ""));
    if (speed.mfu > 0) add("MFU", mfu(speed, rates));
    add("busy", of_start("busy"));
    if (pipeline_ranks(history_) > 1) {
      add("bubble",
          fmt::format("{} by CPU time, {} by the clock, {} predicted",
                      percent_text(speed.bubble_ratio), percent_text(speed.bubble_ratio_wall),
                      percent_text(speed.bubble_predicted)));
    }
  }

  // The MFU, with the rate that it is a share of.
  std::string mfu(const RunSpeed& speed, const RunRates& rates) const {
    std::string text = percent_text(speed.mfu);
    const double rate = rates.of(history_.back().iteration);
    text += fmt::format(" of {:.4g} TFLOP/s", rate * 1e-12);
    if (run_.about.starts.empty()) return text;
    for (const auto& [kind, count] : run_.about.starts.back().machines) {
      text += count == 1 ? fmt::format(", {}", kind) : fmt::format(", {:g} x {}", count, kind);
    }
    return text;
  }

  std::string of_start(std::string_view name) const {
    if (run_.about.starts.empty()) return "";
    for (const auto& [key, value] : run_.about.starts.back().facts) {
      if (key == name) return value;
    }
    return "";
  }

  const ReportedRun& run_;
  const Json config_;
  const History& history_;
  Json rows_ = Json::array();
};

}  // namespace

nlohmann::ordered_json facts_of(const ReportedRun& run) {
  return Facts(run).list();
}

}  // namespace trident

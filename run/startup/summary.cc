#include "run/startup/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/process/terminal.h"
#include "base/units.h"
#include "engine/setup/from_config.h"
#include "report/run_speed.h"

namespace trident {
namespace {

std::string clock_text(double seconds) {
  const long s = std::lround(std::max(0.0, seconds));
  if (s >= 86400) return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}m{:02}s", s / 60, s % 60);
}

std::string bar_of(std::int64_t iterations, const IterationMetrics& m, bool colour) {
  constexpr std::int64_t width = 16;
  const std::int64_t total = std::max<std::int64_t>(1, iterations);
  const auto full =
      static_cast<std::size_t>(std::clamp<std::int64_t>(width * m.iteration / total, 0, width));
  return fmt::format("[{}{}{}{}]", colour ? "\033[36m" : "", std::string(full, '#'),
                     colour ? "\033[0m" : "", std::string(width - full, '.'));
}

// Means of the loss over equal intervals of the history.
struct LossCurve {
  std::vector<std::int64_t> iterations;  // the last iteration of each interval
  std::vector<double> means;
};

LossCurve curve_of(const std::vector<IterationMetrics>& history, std::size_t most) {
  LossCurve curve;
  const std::size_t n = history.size(), width = std::min(most, n);
  for (std::size_t c = 0; c < width; ++c) {
    const std::size_t from = n * c / width, to = n * (c + 1) / width;
    double sum = 0;
    for (std::size_t i = from; i < to; ++i) sum += history[i].loss;
    curve.means.push_back(sum / static_cast<double>(to - from));
    curve.iterations.push_back(history[to - 1].iteration);
  }
  return curve;
}

// Totals of the run. Its MFU uses the product rate that is known at the end of the run.
RunSpeed speed_of(const TrainingSummary& summary) {
  return trident::speed_of(summary.history,
                           [&](const IterationMetrics&) { return summary.rate.total(); });
}

}  // namespace

std::string progress_line(std::int64_t train_iters, const IterationMetrics& m,
                          const ProgressView& view) {
  struct Part {
    std::string text;
    int rank = 0;  // the order in which parts are added, 0 first
    int columns = 0;
  };
  std::vector<Part> parts;
  const auto add = [&](int rank, std::string text, int columns = 0) {
    const int wide = columns > 0 ? columns : columns_of(text);
    parts.push_back({std::move(text), rank, wide});
  };
  if (view.bar) add(5, bar_of(train_iters, m, view.colour), 18);
  add(0, fmt::format("{}/{}", m.iteration, train_iters));
  add(0, fmt::format("loss {:.4f}", m.loss));
  for (const auto& [name, loss] : m.validation_loss) {
    add(1, fmt::format("validation{} {:.4f}", name.empty() ? "" : " " + name, loss));
  }
  add(7, fmt::format("lr {:.3g}", m.learning_rate));
  add(8, fmt::format("grad norm {:.3g}", m.grad_norm));
  add(4, seconds_text(1e-3 * m.iteration_time_ms));
  add(2, fmt::format("{:.0f} tokens/s", m.tokens_per_second));
  if (!view.clock.empty()) add(9, view.clock);
  if (view.seconds_left >= 0) add(3, clock_text(view.seconds_left) + " left");

  constexpr int gap = 2;
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return parts[i].rank; });
  std::vector<bool> shown(parts.size(), false);
  int used = -gap;
  for (const std::size_t i : order) {
    const bool fits = view.columns == 0 || used + gap + parts[i].columns <= view.columns;
    if (!fits && parts[i].rank > 0) continue;
    shown[i] = true;
    used += gap + parts[i].columns;
  }
  std::string line;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (shown[i]) line += (line.empty() ? "" : "  ") + parts[i].text;
  }
  return line;
}

std::string loss_curve(const std::vector<IterationMetrics>& history, int columns, int rows) {
  if (history.empty()) return "";
  constexpr int labels = 10;  // "  4.1234 |"
  const std::vector<double> means =
      curve_of(history, static_cast<std::size_t>(std::max(columns - labels, 10))).means;
  const auto width = static_cast<int>(means.size());
  double low = INFINITY, high = -INFINITY;
  for (const double value : means) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (!std::isfinite(low)) return "loss: not finite\n";
  if (!(high > low)) rows = 1;  // all values are equal
  const double step = rows > 1 ? (high - low) / (rows - 1) : 1;
  std::vector<std::string> grid(static_cast<std::size_t>(rows),
                                std::string(static_cast<std::size_t>(width), ' '));
  for (int c = 0; c < width; ++c) {
    const double value = means[static_cast<std::size_t>(c)];
    if (!std::isfinite(value)) continue;
    const int row = static_cast<int>(std::lround((high - value) / step));
    grid[static_cast<std::size_t>(std::clamp(row, 0, rows - 1))][static_cast<std::size_t>(c)] = '*';
  }
  std::string text = "loss\n";
  for (int r = 0; r < rows; ++r) {
    text += fmt::format("{:8.{}f} |{}\n", high - r * step, std::abs(high) < 1000 ? 4 : 1,
                        grid[static_cast<std::size_t>(r)]);
  }
  text += fmt::format("{:8} +{}\n{:8}  {} … {}  (iteration)\n", "",
                      std::string(static_cast<std::size_t>(width), '-'), "",
                      history.front().iteration, history.back().iteration);
  return text;
}

std::string closing_text(const PipelineConfig& pipeline, const Plan& plan,
                         const TrainingSummary& summary, const Shared& shared, int columns) {
  const std::string curve = "\n" + loss_curve(summary.history, columns > 0 ? columns : 80);
  if (summary.history.empty()) return curve;
  std::string text;
  const IterationMetrics& last = summary.history.back();
  text += fmt::format("\nfinal loss {:.4f}", last.loss);
  for (const auto& [name, loss] : last.validation_loss) {
    text += fmt::format(", validation{} {:.4f} nats a token", name.empty() ? "" : " " + name, loss);
  }
  text += "\n";
  const std::string shown = summary.sample.empty() ? "" : "\nsample:\n" + summary.sample + "\n";
  const std::string losses = std::exchange(text, "");

  const RunSpeed speed = speed_of(summary);
  text += fmt::format("\nspeed   {:.0f} tokens/s over {} of {}{}", speed.tokens_per_second,
                      seconds_text(speed.seconds), counted(speed.iterations, "iteration"),
                      speed.without_first ? ", without the first" : "");
  if (speed.mfu > 0) text += fmt::format("; MFU {} {}", percent_text(speed.mfu), shared.rate);
  text += fmt::format("\nbubble  {} measured by CPU time, {} by the clock, {} predicted ({})\n",
                      percent_text(speed.bubble_ratio), percent_text(speed.bubble_ratio_wall),
                      percent_text(speed.bubble_predicted), schedule_name(pipeline));
  if (!summary.rate.busy.empty()) text += "        " + summary.rate.busy + "\n";
  if (!shared.ranks.empty()) text += "        " + shared.ranks + "\n";
  const auto predicted = largest_rank(plan);
  std::int64_t most = 0;
  for (const auto& [name, bytes] : last.peak_memory) most = std::max(most, bytes);
  const ByteUnit unit = byte_unit(static_cast<double>(most));
  text += fmt::format("memory  of the largest rank, {}:", unit.name);
  for (const auto& [name, bytes] : last.peak_memory) {
    text += fmt::format("  {} {:.2f}", name, unit.of(bytes));
    if (const auto it = predicted.find(name); it != predicted.end()) {
      text += fmt::format(" (predicted {:.2f})", unit.of(it->second));
    }
  }
  text += "\nwrote  ";
  for (const std::string& path : summary.written) text += " " + path;
  text += "\n";
  return curve + wrapped(losses, columns, 2) + shown + wrapped(text, columns, 8);
}

nlohmann::ordered_json closing_json(const Config& config, const Plan& plan,
                                    const TrainingSummary& summary, const Shared& shared) {
  using Json = nlohmann::ordered_json;
  const std::vector<IterationMetrics>& history = summary.history;
  Json result{{"iterations", 0}, {"loss", nullptr}};
  if (!history.empty()) {
    result["iterations"] = history.back().iteration;
    result["loss"] = history.back().loss;
  }
  result["stopped"] = summary.stopped;
  result["ranks"] = config.world_size();
  result["schedule"] = schedule_name(config.pipeline);
  if (history.empty()) return result;
  const IterationMetrics& last = history.back();
  Json validation = Json::object();
  for (const auto& [name, loss] : last.validation_loss) validation[name] = loss;
  const bool single = validation.size() == 1 && validation.contains("");
  if (!validation.empty()) result["validation_loss"] = single ? validation[""] : validation;
  const LossCurve curve = curve_of(history, 100);
  result["loss_curve"] = {{"iteration", curve.iterations}, {"loss", curve.means}};
  if (!summary.sample.empty()) result["sample"] = summary.sample;
  const RunSpeed speed = speed_of(summary);
  result["counted_iterations"] = speed.iterations;
  result["counted_seconds"] = speed.seconds;
  result["tokens_per_second"] = speed.tokens_per_second;
  result["mfu"] = speed.mfu > 0 ? Json(speed.mfu) : Json(nullptr);
  result["mfu_of"] = shared.rate;
  result["product_rate"] = summary.rate.total() > 0 ? Json(summary.rate.total()) : Json(nullptr);
  if (!summary.rate.busy.empty()) result["busy"] = summary.rate.busy;
  result["bubble_ratio"] = speed.bubble_ratio;
  result["bubble_ratio_wall"] = speed.bubble_ratio_wall;
  result["bubble_predicted"] = speed.bubble_predicted;
  if (!shared.ranks.empty()) result["shared"] = shared.ranks;
  result["peak_memory"] = last.peak_memory;
  result["predicted_memory"] = largest_rank(plan);
  result["written"] = summary.written;
  return result;
}

}  // namespace trident

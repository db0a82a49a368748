#include "training/run/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "core/terminal.h"
#include "training/setup/from_config.h"

namespace trident {
namespace {

std::string clock_text(double seconds) {
  const long s = std::lround(std::max(0.0, seconds));
  if (s >= 86400) return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}m{:02}s", s / 60, s % 60);
}

std::string step_time(double ms) {
  if (ms >= 10'000) return fmt::format("{:.1f} s", ms * 1e-3);
  return fmt::format("{:.{}f} ms", ms, ms < 10 ? 2 : ms < 100 ? 1 : 0);
}

std::string bar_of(const Config& config, const IterationMetrics& m, bool colour) {
  constexpr std::int64_t width = 16;
  const std::int64_t total = std::max<std::int64_t>(1, config.training.train_iters);
  const auto full =
      static_cast<std::size_t>(std::clamp<std::int64_t>(width * m.iteration / total, 0, width));
  return fmt::format("[{}{}{}{}]", colour ? "\033[36m" : "", std::string(full, '#'),
                     colour ? "\033[0m" : "", std::string(width - full, '.'));
}

// Of equal stretches of the history, at most so many.
struct LossCurve {
  std::vector<std::int64_t> iterations;  // the last of each
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

// Means of a run, without the first iteration, which still makes buffers and cached products.
struct Means {
  double bubble = 0, wall = 0, predicted = 0, tokens = 0, mfu = 0;
};

Means means_of(const std::vector<IterationMetrics>& history) {
  Means means;
  std::int64_t count = 0;
  for (const IterationMetrics& m : history) {
    if (m.iteration == 1 && history.size() > 1) continue;
    means.bubble += m.bubble_ratio;
    means.wall += m.bubble_ratio_wall;
    means.predicted += m.bubble_predicted;
    means.tokens += m.tokens_per_second;
    means.mfu += m.mfu;
    ++count;
  }
  for (double* const one :
       {&means.bubble, &means.wall, &means.predicted, &means.tokens, &means.mfu}) {
    *one /= static_cast<double>(std::max<std::int64_t>(1, count));
  }
  return means;
}

}  // namespace

std::string progress_line(const Config& config, const IterationMetrics& m,
                          const ProgressView& view) {
  struct Part {
    std::string text;
    int rank = 0;  // which part goes in first
    int columns = 0;
  };
  std::vector<Part> parts;
  const auto add = [&](int rank, std::string text, int columns = 0) {
    const int wide = columns > 0 ? columns : columns_of(text);
    parts.push_back({std::move(text), rank, wide});
  };
  if (view.bar) add(5, bar_of(config, m, view.colour), 18);
  add(0, fmt::format("{}/{}", m.iteration, config.training.train_iters));
  add(0, fmt::format("loss {:.4f}", m.loss));
  for (const auto& [name, loss] : m.validation_loss) {
    add(1, fmt::format("validation{} {:.4f}", name.empty() ? "" : " " + name, loss));
  }
  add(7, fmt::format("lr {:.3g}", m.learning_rate));
  add(8, fmt::format("grad norm {:.3g}", m.grad_norm));
  add(4, step_time(m.iteration_time_ms));
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
  if (!(high > low)) rows = 1;  // one value has one place
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

std::string closing_text(const Config& config, const Plan& plan, const TrainingSummary& summary,
                         const std::string& sample, const Shared& shared, int columns) {
  const std::string curve = "\n" + loss_curve(summary.history, columns > 0 ? columns : 80);
  if (summary.history.empty()) return curve;
  std::string text;
  const IterationMetrics& last = summary.history.back();
  text += fmt::format("\nfinal loss {:.4f}", last.loss);
  for (const auto& [name, loss] : last.validation_loss) {
    text += fmt::format(", validation{} {:.4f} nats a token", name.empty() ? "" : " " + name, loss);
  }
  text += "\n";
  const std::string shown = sample.empty() ? "" : "\nsample:\n" + sample + "\n";
  const std::string losses = std::exchange(text, "");

  const Means means = means_of(summary.history);
  text += fmt::format(
      "\nspeed   {:.0f} tokens/s, {:.1f}% {}\n"
      "bubble  {:.1f}% measured by CPU time, {:.1f}% by the clock, {:.1f}% predicted ({})\n",
      means.tokens, 100 * means.mfu, shared.rate, 100 * means.bubble, 100 * means.wall,
      100 * means.predicted, schedule_name(config));
  if (!shared.ranks.empty()) text += "        " + shared.ranks + "\n";
  const auto predicted = largest_rank(plan);
  text += "memory  of the largest rank, MB:";
  for (const auto& [name, bytes] : last.peak_memory) {
    text += fmt::format("  {} {:.2f}", name, static_cast<double>(bytes) * 1e-6);
    if (const auto it = predicted.find(name); it != predicted.end()) {
      text += fmt::format(" (predicted {:.2f})", static_cast<double>(it->second) * 1e-6);
    }
  }
  text += "\nwrote  ";
  for (const std::string& path : summary.written) text += " " + path;
  text += "\n";
  return curve + wrapped(losses, columns, 2) + shown + wrapped(text, columns, 8);
}

nlohmann::ordered_json closing_json(const Config& config, const Plan& plan,
                                    const TrainingSummary& summary, const std::string& sample,
                                    const Shared& shared) {
  using Json = nlohmann::ordered_json;
  const std::vector<IterationMetrics>& history = summary.history;
  Json result{{"iterations", 0}, {"loss", nullptr}};
  if (!history.empty()) {
    result["iterations"] = history.back().iteration;
    result["loss"] = history.back().loss;
  }
  result["stopped"] = summary.stopped;
  result["ranks"] = config.world_size();
  result["schedule"] = schedule_name(config);
  if (history.empty()) return result;
  const IterationMetrics& last = history.back();
  Json validation = Json::object();
  for (const auto& [name, loss] : last.validation_loss) validation[name] = loss;
  const bool single = validation.size() == 1 && validation.contains("");
  if (!validation.empty()) result["validation_loss"] = single ? validation[""] : validation;
  const LossCurve curve = curve_of(history, 100);
  result["loss_curve"] = {{"iteration", curve.iterations}, {"loss", curve.means}};
  if (!sample.empty()) result["sample"] = sample;
  const Means means = means_of(history);
  result["tokens_per_second"] = means.tokens;
  result["mfu"] = means.mfu;
  result["mfu_of"] = shared.rate;
  result["bubble_ratio"] = means.bubble;
  result["bubble_ratio_wall"] = means.wall;
  result["bubble_predicted"] = means.predicted;
  if (!shared.ranks.empty()) result["shared"] = shared.ranks;
  result["peak_memory"] = last.peak_memory;
  result["predicted_memory"] = largest_rank(plan);
  result["written"] = summary.written;
  return result;
}

}  // namespace trident

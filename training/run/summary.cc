#include "training/run/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "training/setup/from_config.h"

namespace trident {
namespace {

std::string duration(double seconds) {
  const long s = std::lround(std::max(0.0, seconds));
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}m{:02}s", s / 60, s % 60);
}

}  // namespace

std::string progress_line(const Config& config, const IterationMetrics& m, double seconds_left) {
  constexpr int width = 24;
  const std::int64_t total = config.training.train_iters;
  const auto full = static_cast<std::size_t>(width * m.iteration / total);
  std::string line = fmt::format("[{}{}] {}/{}  loss {:.4f}", std::string(full, '#'),
                                 std::string(width - full, '.'), m.iteration, total, m.loss);
  for (const auto& [name, loss] : m.validation_loss) {
    line += fmt::format("  validation{} {:.4f}", name.empty() ? "" : " " + name, loss);
  }
  line += fmt::format("  {:.0f} tokens/s", m.tokens_per_second);
  if (seconds_left >= 0) line += fmt::format("  {} left", duration(seconds_left));
  return line;
}

std::string loss_curve(const std::vector<IterationMetrics>& history, int columns, int rows) {
  if (history.empty()) return "";
  const auto n = history.size();
  const auto width = static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(columns), n));
  std::vector<double> means;
  for (int c = 0; c < width; ++c) {
    const std::size_t from = n * static_cast<std::size_t>(c) / static_cast<std::size_t>(width);
    const std::size_t to = n * static_cast<std::size_t>(c + 1) / static_cast<std::size_t>(width);
    double sum = 0;
    for (std::size_t i = from; i < to; ++i) sum += history[i].loss;
    means.push_back(sum / static_cast<double>(to - from));
  }
  double low = INFINITY, high = -INFINITY;
  for (const double value : means) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (!std::isfinite(low)) return "loss: not finite\n";
  const double step = high > low ? (high - low) / (rows - 1) : 1;
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
    text += fmt::format("{:8.4f} |{}\n", high - r * step, grid[static_cast<std::size_t>(r)]);
  }
  text += fmt::format("{:8} +{}\n{:8}  {} … {}  (iteration)\n", "",
                      std::string(static_cast<std::size_t>(width), '-'), "",
                      history.front().iteration, history.back().iteration);
  return text;
}

std::string closing_text(const Config& config, const Plan& plan, const TrainingSummary& summary,
                         const std::string& sample, const Shared& shared) {
  std::string text = "\n" + loss_curve(summary.history);
  if (summary.history.empty()) return text;
  const IterationMetrics& last = summary.history.back();
  text += fmt::format("\nfinal loss {:.4f}", last.loss);
  for (const auto& [name, loss] : last.validation_loss) {
    text += fmt::format(", validation{} {:.4f} nats a token", name.empty() ? "" : " " + name, loss);
  }
  text += "\n";
  if (!sample.empty()) text += "\nsample:\n" + sample + "\n";

  // The first iteration still makes buffers and cached products.
  double bubble = 0, wall = 0, predicted_bubble = 0, tokens = 0, mfu = 0;
  std::int64_t count = 0;
  for (const IterationMetrics& m : summary.history) {
    if (m.iteration == 1 && summary.history.size() > 1) continue;
    bubble += m.bubble_ratio;
    wall += m.bubble_ratio_wall;
    predicted_bubble += m.bubble_predicted;
    tokens += m.tokens_per_second;
    mfu += m.mfu;
    ++count;
  }
  const double scale = 1.0 / static_cast<double>(std::max<std::int64_t>(1, count));
  text += fmt::format(
      "\nspeed   {:.0f} tokens/s, {:.1f}% {}\n"
      "bubble  {:.1f}% measured by CPU time, {:.1f}% by the clock, {:.1f}% predicted ({})\n",
      tokens * scale, 100 * mfu * scale, shared.rate, 100 * bubble * scale, 100 * wall * scale,
      100 * predicted_bubble * scale, schedule_name(config));
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
  return text + "\n";
}

}  // namespace trident

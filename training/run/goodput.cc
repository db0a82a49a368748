#include "training/run/goodput.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/fnv1a.h"
#include "core/json.h"

namespace trident {
namespace {

double number_in(const nlohmann::json& line, const char* key) {
  const auto it = line.find(key);
  return it != line.end() && it->is_number() ? it->get<double>() : 0;
}

std::size_t common(const auto& a, const auto& b) {
  std::size_t n = 0;
  while (n < a.size() && n < b.size() && a[n].hash == b[n].hash) ++n;
  return n;
}

}  // namespace

GoodputCounter::GoodputCounter(std::string metrics)
    : metrics_(std::move(metrics)), lines_(read()), before_(lines_) {}

std::vector<GoodputCounter::Line> GoodputCounter::read() const {
  std::vector<Line> lines;
  std::ifstream file(metrics_);
  for (std::string text; std::getline(file, text);) {
    if (file.eof()) break;  // cut off
    const nlohmann::json line = json_or_null(text);
    if (!line.is_object()) break;
    lines.push_back({fnv1a(text), static_cast<std::int64_t>(number_in(line, "iteration")),
                     number_in(line, "iteration_time_ms") * 1e-3,
                     number_in(line, "save_pause_ms") * 1e-3});
  }
  return lines;
}

std::int64_t GoodputCounter::iteration() const {
  return lines_.empty() ? 0 : lines_.back().iteration;
}

void GoodputCounter::ended(double seconds) {
  alive_ += seconds;
  std::vector<Line> now = read();
  for (std::size_t i = std::max(common(lines_, now), common(before_, lines_)); i < lines_.size();
       ++i) {
    ++lost_iterations_;
    lost_ += lines_[i].run + lines_[i].pause;
  }
  lines_ = std::move(now);
}

Goodput GoodputCounter::now() const {
  Goodput result{
      .starts = starts_, .lost_iterations = lost_iterations_, .lost = lost_, .waiting = waiting_};
  for (std::size_t i = common(before_, lines_); i < lines_.size(); ++i) {
    ++result.iterations;
    result.training += lines_[i].run;
    result.saving += lines_[i].pause;
  }
  result.starting = std::max(0.0, alive_ - result.training - result.saving - result.lost);
  return result;
}

std::string text_of(const Goodput& of) {
  const auto row = [&](const char* name, double seconds, const std::string& what) {
    return fmt::format("  {:<9} {:>10.1f} s {:>5.1f}%  {}\n", name, seconds,
                       of.seconds() > 0 ? 100 * seconds / of.seconds() : 0.0, what);
  };
  return fmt::format("{} start(s), {:.1f} s in all\n", of.starts, of.seconds()) +
         row("training", of.training,
             fmt::format("{} iterations that stand: goodput", of.iterations)) +
         row("saving", of.saving, "training waited for checkpoints") +
         row("lost", of.lost,
             fmt::format("{} iterations that were run in vain", of.lost_iterations)) +
         row("starting", of.starting,
             "starts, loading, evaluation, the last save, what broke off") +
         row("waiting", of.waiting, "between starts");
}

}  // namespace trident

#include "run/supervisor/goodput.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/files/file.h"
#include "base/files/json.h"
#include "base/fnv1a.h"
#include "base/units.h"

namespace trident {
namespace {

constexpr std::uint64_t kPart = 1 << 20;  // bytes per read, and the longest line

// 0 if the key is missing or its value is impossible.
double number_in(const nlohmann::json& line, const char* key) {
  const auto it = line.find(key);
  const double value = it != line.end() && it->is_number() ? it->get<double>() : 0;
  return value > 0 && value < 0x1p53 ? value : 0;
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
  try {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(metrics_, ignored)) read(ReadFile(metrics_), lines);
  } catch (const std::exception&) {
    // The file was truncated or removed meanwhile; the lines read so far count.
  }
  return lines;
}

void GoodputCounter::read(const ReadFile& file, std::vector<Line>& lines) {
  std::string text;  // the bytes after the last complete line
  std::vector<std::byte> part(kPart);
  for (std::uint64_t at = 0; at < file.size(); at += part.size()) {
    part.resize(std::min<std::uint64_t>(kPart, file.size() - at));
    file.read_at(at, part);
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      const std::string whole = text.substr(begin, end - begin);
      const nlohmann::json line = json_or_null(whole);
      if (!line.is_object()) return;
      lines.push_back({fnv1a(whole), static_cast<std::int64_t>(number_in(line, "iteration")),
                       number_in(line, "iteration_time_ms") * 1e-3,
                       number_in(line, "save_pause_ms") * 1e-3});
    }
    text.erase(0, begin);
    if (text.size() > kPart) return;  // too long for a line of metrics
  }
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
  return fmt::format("{}, {:.1f} s in all\n", counted(of.starts, "start"), of.seconds()) +
         row("training", of.training, counted(of.iterations, "iteration") + " kept: goodput") +
         row("saving", of.saving, "training waited for checkpoints") +
         row("lost", of.lost,
             counted(of.lost_iterations, "iteration") + " repeated or never saved") +
         row("starting", of.starting,
             "starts, loading, evaluation, the last save, interrupted iterations") +
         row("waiting", of.waiting, "between starts");
}

}  // namespace trident

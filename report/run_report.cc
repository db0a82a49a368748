#include "report/run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <set>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "report/metrics_file.h"
#include "report/page.h"
#include "report/resumptions.h"
#include "report/run_facts.h"
#include "report/run_speed.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;
using History = std::vector<IterationMetrics>;

constexpr std::size_t most_points = 4000;
constexpr std::size_t most_marks = 1000;  // of values that are not finite

// Seven digits are more than a picture shows.
Json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.7g}", value).c_str(), nullptr);
}

// A history in at most most_points equal intervals.
struct Intervals {
  explicit Intervals(const History& of) : history(of) {
    size = std::max<std::size_t>(1, (history.size() + most_points - 1) / most_points);
  }
  void each(const std::function<void(std::size_t, std::size_t)>& call) const {
    for (std::size_t i = 0; i < history.size(); i += size) {
      call(i, std::min(i + size, history.size()));
    }
  }
  const History& history;
  std::size_t size;
};

// Nothing where an iteration lacks the value.
using Value = std::function<std::optional<double>(const IterationMetrics&)>;

// The weight of an iteration in a rate: an interval's tokens over its time.
double time_of(const IterationMetrics& m) {
  return m.iteration_time_ms > 0 && std::isfinite(m.iteration_time_ms) ? m.iteration_time_ms : 0;
}

// The mean of each interval. For intervals of more than one iteration also their ranges, and in any
// case the iterations with values that are not finite.
Json curve(
    const Intervals& intervals, const Value& value,
    const Value& weight = [](const IterationMetrics&) { return 1.0; }) {
  Json mean = Json::array(), low = Json::array(), high = Json::array(), marks = Json::array();
  intervals.each([&](std::size_t begin, std::size_t end) {
    double sum = 0, weights = 0, plain = 0, least = INFINITY, most = -INFINITY;
    std::size_t finite = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const std::optional<double> known = value(intervals.history[i]);
      if (!known) continue;
      const double one = *known;
      if (!std::isfinite(one)) {
        if (marks.size() < most_marks) marks.push_back(intervals.history[i].iteration);
        continue;
      }
      plain += one;
      sum += *weight(intervals.history[i]) * one;
      weights += *weight(intervals.history[i]);
      least = std::min(least, one);
      most = std::max(most, one);
      ++finite;
    }
    const double whole = weights > 0 ? sum / weights : plain / static_cast<double>(finite);
    mean.push_back(finite > 0 ? rounded(whole) : nullptr);
    low.push_back(finite > 0 ? rounded(least) : nullptr);
    high.push_back(finite > 0 ? rounded(most) : nullptr);
  });
  Json result{{"mean", mean}};
  if (intervals.size > 1) {
    result["low"] = low;
    result["high"] = high;
  }
  if (!marks.empty()) result["not_finite"] = marks;
  return result;
}

// Positions along x. They are left out if lines lack them.
void add_places(Json& all, const char* name, const Intervals& intervals,
                const std::function<double(const IterationMetrics&)>& place) {
  Json places = curve(intervals, place)["mean"];
  const bool known = std::ranges::none_of(places, [](const Json& at) { return at.is_null(); });
  if (known) all[name] = std::move(places);
}

Json curves(const ReportedRun& run) {
  const History& history = run.history;
  const RunRates rates(run.about, history);
  const Intervals intervals(history);
  Json all{{"interval", intervals.size}};
  using M = IterationMetrics;
  add_places(all, "iteration", intervals,
             [](const M& m) { return static_cast<double>(m.iteration); });
  add_places(all, "tokens", intervals, [](const M& m) {
    return m.consumed_tokens > 0 ? static_cast<double>(m.consumed_tokens) : NAN;
  });
  // A clock may be set back.
  add_places(all, "seconds", intervals, [begin = begin_of(run), latest = 0.0](const M& m) mutable {
    latest = std::max(latest, m.wall_time - begin);
    return m.wall_time > 0 ? latest : NAN;
  });
  const auto add = [&](const char* name, auto value) { all[name] = curve(intervals, value); };
  add("loss", [](const M& m) { return m.loss; });
  add("grad_norm", [](const M& m) { return m.grad_norm; });
  add("learning_rate", [](const M& m) { return m.learning_rate; });
  const auto add_rate = [&](const char* name, auto value) {
    all[name] = curve(intervals, value, time_of);
  };
  add_rate("tokens_per_second", [](const M& m) { return m.tokens_per_second; });
  add_rate("mfu", [&](const M& m) { return 100 * rates.mfu(m); });
  add_rate("bubble", [](const M& m) { return 100 * m.bubble_ratio; });
  add_rate("bubble_wall", [](const M& m) { return 100 * m.bubble_ratio_wall; });
  add_rate("bubble_predicted", [](const M& m) { return 100 * m.bubble_predicted; });
  add("loss_scale", [](const M& m) { return m.loss_scale; });
  add("batch_size", [](const M& m) { return static_cast<double>(m.batch_size); });
  Json parts = Json::object();
  for (const auto& [name, ms] : history.front().parts_ms) {
    parts[name] = curve(intervals, [&name = name](const M& m) {
      const auto found = m.parts_ms.find(name);
      return found == m.parts_ms.end() ? NAN : found->second;
    })["mean"];
  }
  all["parts"] = parts;
  return all;
}

// A page shows no more than these of a model's statistics.
constexpr std::size_t most_names = 32, most_layers = 256, most_values = 1024;
// Of one with several values a layer: iterations, and values in all of them.
constexpr std::size_t most_frames = 40, most_cells = 60'000;

// The mean over layers; nothing if no layer has a value.
std::optional<double> mean_over_layers(const IterationMetrics& m, const std::string& name) {
  const auto found = m.statistics.statistics.find(name);
  if (found == m.statistics.statistics.end()) return std::nullopt;
  double sum = 0;
  std::int64_t count = 0;
  for (const auto& layer : found->second) {
    for (const double value : layer) sum += value, ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

Json values_by_layer(const std::vector<std::vector<double>>& layers) {
  Json rows = Json::array();
  for (const std::vector<double>& values : layers | std::views::take(most_layers)) {
    Json& row = rows.emplace_back(Json::array());
    for (const double value : values | std::views::take(most_values)) row.push_back(rounded(value));
  }
  return rows;
}

// The values of each layer over time: at most most_frames {iteration, layers}, evenly chosen among
// the iterations that have them, with the first and the last one.
Json frames(const History& history, const std::string& name) {
  std::vector<const IterationMetrics*> having;
  std::size_t cells = 1;
  for (const IterationMetrics& m : history) {
    const auto found = m.statistics.statistics.find(name);
    if (found == m.statistics.statistics.end()) continue;
    having.push_back(&m);
    std::size_t own = 0;
    for (const auto& layer : found->second) own += layer.size();
    cells = std::max(cells, own);
  }
  const std::size_t count =
      std::min(having.size(), std::clamp<std::size_t>(most_cells / cells, 1, most_frames));
  Json list = Json::array();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = count == 1 ? having.size() - 1 : i * (having.size() - 1) / (count - 1);
    const IterationMetrics& m = *having[at];
    list.push_back({{"iteration", m.iteration},
                    {"layers", values_by_layer(m.statistics.statistics.at(name))}});
  }
  return list;
}

// The auxiliary losses and statistics of the model's modules: lists of {name, curve} of losses and
// of statistics with one value a layer, and of {name, frames} of others.
Json model_statistics(const History& history) {
  const Intervals intervals(history);
  std::set<std::string> losses;
  std::map<std::string, const std::vector<std::vector<double>>*> last;
  for (const IterationMetrics& m : history) {
    for (const auto& [name, loss] : m.statistics.auxiliary_losses) losses.insert(name);
    for (const auto& [name, layers] : m.statistics.statistics) last[name] = &layers;
  }
  Json result{{"auxiliary_losses", Json::array()}, {"statistics", Json::array()}};
  for (const std::string& name : losses | std::views::take(most_names)) {
    const auto value = [&](const IterationMetrics& m) -> std::optional<double> {
      const auto found = m.statistics.auxiliary_losses.find(name);
      if (found == m.statistics.auxiliary_losses.end()) return std::nullopt;
      return found->second;
    };
    result["auxiliary_losses"].push_back({{"name", name}, {"curve", curve(intervals, value)}});
  }
  for (const auto& [name, layers] : last | std::views::take(most_names)) {
    const bool is_list =
        std::ranges::any_of(*layers, [](const auto& one) { return one.size() > 1; });
    Json& one = result["statistics"].emplace_back(Json{{"name", name}});
    if (is_list) {
      one["frames"] = frames(history, name);
    } else {
      one["curve"] = curve(intervals, [&name = name](const IterationMetrics& m) {
        return mean_over_layers(m, name);
      });
    }
  }
  return result;
}

Json resumptions(const ReportedRun& run) {
  Json list = Json::array();
  for (const Resumption& one : resumptions_of(run)) {
    Json changes = Json::array();
    for (const auto& [name, now, before] : one.changes) changes.push_back({name, now, before});
    list.push_back({{"after", one.after},
                    {"seconds", rounded(one.seconds)},
                    {"layout", one.layout},
                    {"changes", changes}});
  }
  return list;
}

Json validation(const History& history) {
  Json sets = Json::object();
  for (const IterationMetrics& m : history) {
    for (const auto& [name, loss] : m.validation_loss) {
      sets[name].push_back({m.iteration, rounded(loss)});
    }
  }
  return sets;
}

Json bytes_sent(const History& history) {
  Json bytes = Json::object();
  for (const auto& [group, last] : history.back().bytes_sent) {
    const auto mean = mean_of(
        history,
        [&group = group](const IterationMetrics& m) {
          const auto found = m.bytes_sent.find(group);
          return found == m.bytes_sent.end() ? 0.0 : static_cast<double>(found->second);
        },
        [](const IterationMetrics&) { return 1.0; });
    bytes[group] = std::round(mean.value_or(0));
  }
  return bytes;
}

Json rank_bubbles(const History& history) {
  Json ratios = Json::array();
  for (std::size_t r = 0; r < history.back().rank_bubble_ratio.size(); ++r) {
    const auto mean = mean_of(
        history,
        [&](const IterationMetrics& m) {
          return r < m.rank_bubble_ratio.size() ? 100 * m.rank_bubble_ratio[r] : NAN;
        },
        time_of);
    ratios.push_back(rounded(mean.value_or(0)));
  }
  return ratios;
}

Json data_of(const ReportedRun& run) {
  Json data{{"name", run.name}, {"facts", facts_of(run)}, {"config", run.config}};
  if (!run.about.sample.empty()) data["sample"] = run.about.sample;
  if (run.history.empty()) return data;
  data["pipeline"] = pipeline_ranks(run.history);
  data["curves"] = curves(run);
  data["model"] = model_statistics(run.history);
  data["resumptions"] = resumptions(run);
  data["validation"] = validation(run.history);
  data["bytes_sent"] = bytes_sent(run.history);
  data["rank_bubble"] = rank_bubbles(run.history);
  data["memory"] = {{"measured", run.history.back().peak_memory},
                    {"predicted", run.about.predicted_memory}};
  return data;
}

// The text of a file of the run; "" if there is no file.
std::string optional_file(const std::string& path, std::uint64_t most) {
  std::error_code none;
  return std::filesystem::is_regular_file(path, none) ? read_file(path, most) : "";
}

constexpr std::uint64_t most_text = 64 << 20, most_timelines = 256 << 20;

bool is_timeline(const Json& one) {
  const auto is_event = [](const Json& event) {
    if (!event.is_array() || event.size() != 8) return false;
    for (const std::size_t i : {0, 2, 3, 5, 6, 7}) {
      if (!event[i].is_number()) return false;
    }
    return event[0].is_number_unsigned() && event[0] < 1'000'000 && event[1].is_string() &&
           event[4].is_string();
  };
  const auto is_name = [](const Json& name) { return name.is_string(); };
  return one.is_object() && one.contains("title") && one["title"].is_string() &&
         one.contains("rows") && one["rows"].is_array() &&
         std::ranges::all_of(one["rows"], is_name) && one.contains("events") &&
         one["events"].is_array() && std::ranges::all_of(one["events"], is_event);
}

}  // namespace

ReportedRun read_run(const std::string& directory, const BestRates& known) {
  ReportedRun run{.name = directory};
  const std::string metrics = directory + "/" + MetricsFile::kName;
  std::error_code none;
  if (!std::filesystem::is_regular_file(metrics, none)) {
    throw RequestError(
        fmt::format("{}: there is no {} in it; name the folder of a run "
                    "(logging.dir)",
                    printable(directory), MetricsFile::kName));
  }
  for (const Json& line : read_metrics(metrics, true)) run.history.push_back(metrics_of_line(line));
  run.config = read_file(directory + "/config.json", most_text);
  run.about = about_of(optional_file(directory + "/run.json", most_text));
  for (auto& [kind, rate] : run.about.best_rates) {
    if (const auto better = known.find(kind); better != known.end()) {
      rate = std::max(rate, better->second);
    }
  }
  run.timelines = timelines_in(directory);
  return run;
}

std::string timeline_json(const Timeline& timeline) {
  // There may be millions of events, so they are written as text, not kept as values of a document.
  std::string text = fmt::format("{{\"title\":{},\"rows\":{},\"events\":[",
                                 json_text(Json(timeline.title)), json_text(Json(timeline.rows)));
  bool first = true;
  for (const TimelineEvent& event : timeline.events) {
    text += fmt::format("{}[{},\"{}\",{:.3f},{:.3f},{},{},{},{}]", first ? "" : ",\n", event.rank,
                        to_string(event.category), event.start_us, event.duration_us,
                        json_text(Json(event.name)), event.stage, event.microbatch, event.bytes);
    first = false;
  }
  return text + "]}";
}

std::vector<std::string> timelines_in(const std::string& directory) {
  const std::string path = directory + "/timeline.json";
  std::error_code none;
  std::vector<std::string> timelines;
  if (!std::filesystem::is_regular_file(path, none) ||
      std::filesystem::file_size(path, none) > most_timelines) {
    return timelines;
  }
  const Json list = ordered_json_or_null(read_file(path, most_timelines));
  if (!list.is_array()) return timelines;
  for (const Json& one : list) {
    if (is_timeline(one)) timelines.push_back(json_text(one));
  }
  return timelines;
}

std::string run_report(const std::vector<ReportedRun>& runs) {
  Json data = Json::array();
  std::string timelines;
  for (const ReportedRun& run : runs) {
    data.push_back(data_of(run));
    timelines += fmt::format("{}[{}]", timelines.empty() ? "" : ",", fmt::join(run.timelines, ","));
  }
  const std::string title = runs.size() == 1 ? "Trident run " + runs.front().name
                                             : fmt::format("{} Trident runs", runs.size());
  return html_page(title, report_page, "<main id=\"page\"></main>\n",
                   {{"runs", json_text(data)}, {"timelines", "[" + timelines + "]"}});
}

}  // namespace trident

#include "scheduler/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/json.h"
#include "base/units.h"
#include "scheduler/timeline.h"
#include "scheduler/validate.h"

namespace trident {

namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

std::string percent(const std::optional<double>& ratio) {
  return ratio ? percent_text(*ratio, 2) : "-";
}

// The bubbles that a schedule as short as the lower bounds would have.
struct Bounded {
  double ratio = 0.0, ratio_span = 0.0;
};

Bounded bounded(const ScheduleReport& report) {
  double work = 0.0;  // mean over ranks
  for (const auto& actions : report.simulation.actions) {
    for (const TimedAction& action : actions) work += action.end - action.start;
  }
  work /= report.schedule.stages;
  const auto ratio = [&](double bound) {
    return bound > 0.0 ? std::max(0.0, (bound - work) / bound) : 0.0;
  };
  return {ratio(report.bounds.makespan), ratio(report.bounds.span)};
}

// The common time of all ranks; 0 where ranks differ (no formula holds then).
double uniform(const std::vector<double>& share) {
  return std::all_of(share.begin(), share.end(), [&](double t) { return t == share.front(); })
             ? share.front()
             : 0.0;
}

}  // namespace

ScheduleReport make_report(Schedule schedule, const ShareTimes& times, double transfer,
                           const MemoryLimit& memory) {
  validate(schedule);
  ScheduleReport report{std::move(schedule), {}, {}, {}, {}, transfer, memory, {}};
  report.simulation = simulate(report.schedule, stage_times(report.schedule, times), transfer);
  report.idle = idle_by_reason(report.schedule, report.simulation);
  if (!report.schedule.asynchronous()) {
    Schedule empty = report.schedule;
    empty.ranks.clear();
    report.bounds = lower_bounds(
        SearchProblem::of({.memory = memory, .times = times, .transfer = transfer}, empty));
  }
  return report;
}

ScheduleReport make_report(const ScheduleRequest& request) {
  const ShareTimes& times = request.times;
  const double transfer = request.transfer;
  ScheduleReport report = make_report(make_schedule(request), times, transfer, request.memory);
  const UniformTimes t{uniform(times.forward), uniform(times.backward_input),
                       uniform(times.backward_weight)};
  if (transfer == 0.0 && t.forward > 0.0 && t.backward_input > 0.0 && t.backward_weight > 0.0) {
    report.analytic = analytic_bubble(request, t);
  }
  return report;
}

std::string report_json(const ScheduleReport& report) {
  const Schedule& s = report.schedule;
  const auto figures = [&](const Simulation& run) {
    Json reasons = Json::array();
    for (const IdleTime& idle : idle_by_reason(s, run)) {
      reasons.push_back({{"warmup", idle.warmup},
                         {"steady", idle.steady},
                         {"drain", idle.drain},
                         {"transfer", idle.transfer}});
    }
    return Json{{"makespan", run.bubble.makespan},
                {"bubble_ratio", run.bubble.ratio},
                {"bubble_ratio_span", run.bubble.ratio_span},
                {"rank_bubble_ratio", run.bubble.rank_ratio},
                {"bubble_by_reason", reasons},
                {"peak_in_flight", peak_in_flight(s)},
                {"peak_memory", peak_in_flight(s, report.memory.kept_for_weights)},
                {"weight_versions", weight_versions(s)}};
  };
  Json document = {{"kind", s.kind},
                   {"stages", s.stages},
                   {"microbatches", s.microbatches},
                   {"chunks", s.chunks},
                   {"placement", s.placement},
                   {"ranks", nullptr},
                   {"analytic",
                    {{"bubble_ratio", number_or_null(report.analytic.bubble_ratio)},
                     {"bubble_ratio_span", number_or_null(report.analytic.bubble_ratio_span)}}},
                   {"simulated", figures(report.simulation)}};
  if (report.measured) document["measured"] = figures(*report.measured);
  if (!s.asynchronous()) {
    const Bounded bound = bounded(report);
    document["lower_bound"] = {{"makespan", report.bounds.makespan},
                               {"span", report.bounds.span},
                               {"bubble_ratio", bound.ratio},
                               {"bubble_ratio_span", bound.ratio_span}};
  }
  // The lists may have millions of actions, so they are written as text and not kept as JSON
  // values.
  std::string text = json_text(document, 2);
  constexpr std::string_view place = "\"ranks\": null";
  const size_t at = text.find(place) + place.size() - 4;
  std::string rows = "[";
  for (const auto& actions : s.ranks) {
    rows += rows.size() == 1 ? "\n    [\"" : ",\n    [\"";
    append_cells(rows, actions, "\", \"");
    rows += "\"]";
  }
  text.replace(at, 4, rows + "\n  ]");
  return text + "\n";
}

namespace {

// The times of a request have no unit. In a measured run they are milliseconds.
const char* unit_of(const ScheduleReport& report) {
  return report.measured ? "ms" : "units";
}

// The prediction and, if there is one, the measured run.
std::vector<Timeline> timelines(const ScheduleReport& report) {
  const Schedule& s = report.schedule;
  const auto bubbles = [](const Bubble& bubble) {
    return fmt::format("bubble {} ({} by the longest rank's span)", percent(bubble.ratio),
                       percent(bubble.ratio_span));
  };
  const std::string sizes = fmt::format("{}, {}, {}{}", s.kind, counted(s.stages, "stage"),
                                        counted(s.microbatches, "micro-batch"),
                                        s.chunks > 1 ? ", " + counted(s.chunks, "chunk") : "");
  std::vector<Timeline> panels(1);
  panels[0].unit = unit_of(report);
  panels[0].title = fmt::format("{}: {}", sizes, bubbles(report.simulation.bubble));
  panels[0].events = timeline_events(s, report.simulation, 1000.0);
  const auto transfers = transfer_events(s, report.simulation, report.transfer, 1000.0);
  panels[0].events.insert(panels[0].events.end(), transfers.begin(), transfers.end());
  if (report.measured) {
    panels[0].title = fmt::format("{}: predicted {}", sizes, bubbles(report.simulation.bubble));
    panels.push_back({fmt::format("{}: measured {}", sizes, bubbles(report.measured->bubble)),
                      {},
                      timeline_events(s, *report.measured, 1000.0)});
  }
  return panels;
}

std::string comparison_table(const std::vector<ScheduleReport>& reports) {
  std::string text =
      fmt::format("{:>24} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10} {:>9}\n", "kind", "makespan",
                  "bubble", "by span", "formula", "by span", "measured", "in flight", "versions");
  for (const ScheduleReport& report : reports) {
    const Bubble& bubble = report.simulation.bubble;
    const std::vector<double> peaks =
        peak_in_flight(report.schedule, report.memory.kept_for_weights);
    const std::vector<int> versions = weight_versions(report.schedule);
    std::optional<double> measured;
    if (report.measured) measured = report.measured->bubble.ratio;
    text += fmt::format("{:>24} {:>10.5g} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10.4g} {:>9}\n",
                        report.schedule.kind, bubble.makespan, percent(bubble.ratio),
                        percent(bubble.ratio_span), percent(report.analytic.bubble_ratio),
                        percent(report.analytic.bubble_ratio_span), percent(measured),
                        *std::max_element(peaks.begin(), peaks.end()),
                        *std::max_element(versions.begin(), versions.end()));
  }
  return text;
}

}  // namespace

std::string report_text(const ScheduleReport& report, int columns) {
  const Schedule& s = report.schedule;
  const Bubble& bubble = report.simulation.bubble;
  const char* const unit = unit_of(report);
  std::string text;
  for (const Timeline& panel : timelines(report)) text += timeline_text(panel, columns) + "\n";
  text += fmt::format("makespan {:.6g} {}, bubble {} ({} by span), formula {} ({} by span)\n",
                      bubble.makespan, unit, percent(bubble.ratio), percent(bubble.ratio_span),
                      percent(report.analytic.bubble_ratio),
                      percent(report.analytic.bubble_ratio_span));
  if (!s.asynchronous()) {
    const Bounded bound = bounded(report);
    text += fmt::format(
        "no schedule over these stages is shorter than {:.6g} {}, bubble {} (span {:.6g} {}, {})\n",
        report.bounds.makespan, unit, percent(bound.ratio), report.bounds.span, unit,
        percent(bound.ratio_span));
  }
  if (report.measured) {
    const Bubble& run = report.measured->bubble;
    text += fmt::format("measured {:.6g} ms, bubble {} ({} by span)\n", run.makespan,
                        percent(run.ratio), percent(run.ratio_span));
  }
  // Replaces the rounding residue of a sum by 0.
  const auto residue_free = [&](double time) {
    return std::abs(time) < 1e-9 * bubble.makespan ? 0.0 : time;
  };
  text += fmt::format("idle times in {}\n{:>5} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9}\n",
                      unit, "rank", "bubble", "measured", "warm-up", "steady", "drain", "transfer",
                      "in flight", "versions");
  const std::vector<double> peaks = peak_in_flight(s, report.memory.kept_for_weights);
  const std::vector<int> versions = weight_versions(s);
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    const IdleTime& idle = report.idle[rank];
    std::optional<double> measured;
    if (report.measured) measured = report.measured->bubble.rank_ratio[rank];
    text +=
        fmt::format("{:>5} {:>8} {:>9} {:>9.4g} {:>9.4g} {:>9.4g} {:>9.4g} {:>10.4g} {:>9}\n", rank,
                    percent(bubble.rank_ratio[rank]), percent(measured), residue_free(idle.warmup),
                    residue_free(idle.steady), residue_free(idle.drain),
                    residue_free(idle.transfer), peaks[rank], versions[rank]);
  }
  return text;
}

std::string report_svg(const ScheduleReport& report) {
  return timeline_svg(timelines(report));
}

std::string report_chrome(const ScheduleReport& report) {
  std::vector<Timeline> panels = timelines(report);
  Timeline& all = panels.front();
  if (report.measured) {
    for (int rank = 0; rank < report.schedule.stages; ++rank) {
      all.rows.push_back(fmt::format("predicted rank {}", rank));
    }
    for (int rank = 0; rank < report.schedule.stages; ++rank) {
      all.rows.push_back(fmt::format("measured rank {}", rank));
    }
    for (TimelineEvent& event : panels.back().events) event.rank += report.schedule.stages;
    all.events.insert(all.events.end(), panels.back().events.begin(), panels.back().events.end());
  }
  return chrome_trace(all) + "\n";
}

std::string comparison_text(const std::vector<ScheduleReport>& reports, int columns) {
  std::string text;
  for (const ScheduleReport& report : reports) {
    for (const Timeline& panel : timelines(report)) text += timeline_text(panel, columns) + "\n";
  }
  return text + comparison_table(reports);
}

std::string comparison_svg(const std::vector<ScheduleReport>& reports) {
  std::vector<Timeline> panels;
  for (const ScheduleReport& report : reports) {
    for (Timeline& panel : timelines(report)) panels.push_back(std::move(panel));
  }
  return timeline_svg(panels, comparison_table(reports));
}

std::string comparison_json(const std::vector<ScheduleReport>& reports) {
  std::string text;
  for (const ScheduleReport& report : reports) {
    text += (text.empty() ? "" : ",\n") + report_json(report);
  }
  return "{\"schedules\": [\n" + text + "]}\n";
}

std::vector<double> parse_limits(const std::string& text) {
  std::vector<double> limits;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(':', begin), text.size());
    double value = -1.0;
    const char* const last = text.data() + end;
    const auto [stop, error] = std::from_chars(text.data() + begin, last, value);
    const bool none = value == 0.0 && text.find(':') == std::string::npos;
    if (error != std::errc() || stop != last || !(none || (value > 0.0 && value <= 1e9))) {
      throw RequestError(fmt::format(
          "--max-in-flight: \"{}\" in \"{}\": give a number above 0, one for each rank as 8:8:6, "
          "or 0 for no limit",
          text.substr(begin, end - begin), text));
    }
    if (!none) limits.push_back(value);
    begin = end + 1;
  }
  return limits;
}

Times parse_times(const std::string& text) {
  Times times;
  const auto wrong = [&](const std::string& part) {
    throw RequestError(fmt::format(
        "--times: \"{}\" in \"{}\": give F=, B=, W= and C= once each, with 0 or numbers "
        "from 1e-6 to 1e9, as F=1,B=1,W=1,C=0; F, B and W may have one for each rank, "
        "as F=3:4:3",
        part, text));
  };
  std::string seen;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    if (part.size() < 3 || part[1] != '=' || seen.find(part[0]) != std::string::npos) wrong(part);
    seen += part[0];
    std::vector<double> values;
    for (size_t from = 2; from <= part.size();) {
      const size_t to = std::min(part.find(':', from), part.size());
      double value = -1.0;
      const char* const last = part.data() + to;
      const auto [stop, error] = std::from_chars(part.data() + from, last, value);
      if (error != std::errc() || stop != last ||
          !(value == 0.0 || (value >= 1e-6 && value <= 1e9))) {
        wrong(part);
      }
      values.push_back(value);
      from = to + 1;
    }
    switch (part[0]) {
      case 'F':
        times.share.forward = values;
        break;
      case 'B':
        times.share.backward_input = values;
        break;
      case 'W':
        times.share.backward_weight = values;
        break;
      case 'C':
        if (values.size() != 1) wrong(part);
        times.transfer = values.front();
        break;
      default:
        wrong(part);
    }
  }
  return times;
}

}  // namespace trident

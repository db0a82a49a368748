#include "scheduler/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "scheduler/timeline.h"
#include "scheduler/validate.h"

namespace trident {

namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

std::string percent(const std::optional<double>& ratio) {
  return ratio ? fmt::format("{:.2f}%", 100 * *ratio) : "-";
}

// The one time of all ranks; 0 where they differ (no formula then).
double uniform(const std::vector<double>& share) {
  return std::all_of(share.begin(), share.end(), [&](double t) { return t == share.front(); })
             ? share.front()
             : 0.0;
}

}  // namespace

ScheduleReport make_report(Schedule schedule, const ShareTimes& times, double transfer) {
  validate(schedule);
  ScheduleReport report{std::move(schedule), {}, {}, {}};
  report.simulation = simulate(report.schedule, stage_times(report.schedule, times), transfer);
  report.idle = idle_by_reason(report.schedule, report.simulation, transfer);
  return report;
}

ScheduleReport make_report(const ScheduleRequest& request) {
  const ShareTimes& times = request.times;
  const double transfer = request.transfer;
  ScheduleReport report = make_report(make_schedule(request), times, transfer);
  const UniformTimes t{uniform(times.forward), uniform(times.backward_input),
                       uniform(times.backward_weight)};
  if (transfer == 0.0 && t.forward > 0.0 && t.backward_input > 0.0 && t.backward_weight > 0.0) {
    report.analytic = analytic_bubble(request, t);
  }
  return report;
}

std::string report_json(const ScheduleReport& report) {
  const Schedule& s = report.schedule;
  const Bubble& bubble = report.simulation.bubble;
  Json reasons = Json::array();
  for (const IdleTime& idle : report.idle) {
    reasons.push_back({{"warmup", idle.warmup},
                       {"steady", idle.steady},
                       {"drain", idle.drain},
                       {"transfer", idle.transfer}});
  }
  const Json document = {
      {"kind", s.kind},
      {"stages", s.stages},
      {"microbatches", s.microbatches},
      {"chunks", s.chunks},
      {"placement", s.placement},
      {"ranks", nullptr},
      {"analytic",
       {{"bubble_ratio", number_or_null(report.analytic.bubble_ratio)},
        {"bubble_ratio_span", number_or_null(report.analytic.bubble_ratio_span)}}},
      {"simulated",
       {{"makespan", bubble.makespan},
        {"bubble_ratio", bubble.ratio},
        {"bubble_ratio_span", bubble.ratio_span},
        {"rank_bubble_ratio", bubble.rank_ratio},
        {"bubble_by_reason", reasons},
        {"peak_in_flight", peak_in_flight(s)},
        {"weight_versions", weight_versions(s)}}}};
  // Millions of actions: written here and not kept as values of the document.
  std::string text = document.dump(2);
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

std::string report_text(const ScheduleReport& report, int columns) {
  const Schedule& s = report.schedule;
  const Bubble& bubble = report.simulation.bubble;
  Timeline timeline;
  timeline.title = fmt::format("{}: {} stages, {} micro-batches, {} chunk{} a rank", s.kind,
                               s.stages, s.microbatches, s.chunks, s.chunks == 1 ? "" : "s");
  timeline.events = timeline_events(s, report.simulation, 1000.0);
  std::string text = timeline_text(timeline, columns);
  text += fmt::format(
      "\nmakespan {:.6g}   bubble {} by makespan, {} by the longest rank's span   formula {}, {}\n",
      bubble.makespan, percent(bubble.ratio), percent(bubble.ratio_span),
      percent(report.analytic.bubble_ratio), percent(report.analytic.bubble_ratio_span));
  text += fmt::format("{:>5} {:>8} {:>9} {:>9} {:>9} {:>9} {:>10}\n", "rank", "bubble", "warm-up",
                      "steady", "drain", "transfer", "in flight");
  const std::vector<double> peaks = peak_in_flight(s);
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    const IdleTime& idle = report.idle[rank];
    text += fmt::format("{:>5} {:>8} {:>9.4g} {:>9.4g} {:>9.4g} {:>9.4g} {:>10.4g}\n", rank,
                        percent(bubble.rank_ratio[rank]), idle.warmup, idle.steady, idle.drain,
                        idle.transfer, peaks[rank]);
  }
  return text;
}

std::string comparison_text(const std::vector<ScheduleReport>& reports, int columns) {
  std::string text;
  for (const ScheduleReport& report : reports) {
    Timeline timeline;
    timeline.title = report.schedule.kind;
    timeline.events = timeline_events(report.schedule, report.simulation, 1000.0);
    text += timeline_text(timeline, columns) + "\n";
  }
  text += fmt::format("{:>24} {:>10} {:>8} {:>8} {:>8} {:>8} {:>10} {:>9}\n", "kind", "makespan",
                      "bubble", "by span", "formula", "by span", "in flight", "versions");
  for (const ScheduleReport& report : reports) {
    const Bubble& bubble = report.simulation.bubble;
    const std::vector<double> peaks = peak_in_flight(report.schedule);
    const std::vector<int> versions = weight_versions(report.schedule);
    text += fmt::format("{:>24} {:>10.5g} {:>8} {:>8} {:>8} {:>8} {:>10.4g} {:>9}\n",
                        report.schedule.kind, bubble.makespan, percent(bubble.ratio),
                        percent(bubble.ratio_span), percent(report.analytic.bubble_ratio),
                        percent(report.analytic.bubble_ratio_span),
                        *std::max_element(peaks.begin(), peaks.end()),
                        *std::max_element(versions.begin(), versions.end()));
  }
  return text;
}

Times parse_times(const std::string& text) {
  Times times;
  const auto wrong = [&](const std::string& part) {
    throw RequestError(
        fmt::format("--times: \"{}\" in \"{}\": give F=, B=, W= and C= with numbers of 0 or more, "
                    "as F=1,B=1,W=1,C=0; F, B and W may have one for each rank, as F=3:4:3",
                    part, text));
  };
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    if (part.size() < 3 || part[1] != '=') wrong(part);
    std::vector<double> values;
    for (size_t from = 2; from <= part.size();) {
      const size_t to = std::min(part.find(':', from), part.size());
      double value = -1.0;
      const char* const last = part.data() + to;
      const auto [stop, error] = std::from_chars(part.data() + from, last, value);
      if (error != std::errc() || stop != last || !(value >= 0.0) || value > 1e300) wrong(part);
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

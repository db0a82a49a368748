// The report of the `schedule` command on one or several schedules: simulated times, bubbles and
// memory, as JSON, text or drawings. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scheduler/analytic.h"
#include "scheduler/lower_bound.h"
#include "scheduler/simulate.h"

namespace trident {

struct ScheduleReport {
  Schedule schedule;
  AnalyticBubble analytic;
  Simulation simulation;
  std::vector<IdleTime> idle;  // [p]
  // The simulation's counterpart from a real run with these times in milliseconds, if there was
  // one.
  std::optional<Simulation> measured;
  double transfer = 0.0;
  MemoryLimit memory;
  // Lower bounds for any schedule over the same stages, times and memory.
  LowerBounds bounds;
};

// Validates and simulates the schedule. Throws RequestError as validate and stage_times do.
ScheduleReport make_report(const ScheduleRequest& request);
ScheduleReport make_report(Schedule schedule, const ShareTimes& times, double transfer,
                           const MemoryLimit& memory = {});

// The JSON document, with a rank's actions on one line.
std::string report_json(const ScheduleReport& report);
// A title with the bubbles, the timeline and a table of ranks, `columns` wide.
std::string report_text(const ScheduleReport& report, int columns = 100);
// The prediction and, below it, the measured run. One unit of the times is a millisecond.
std::string report_svg(const ScheduleReport& report);
std::string report_chrome(const ScheduleReport& report);
// The timelines of several schedules and one table: makespan, bubbles, memory, weight versions.
std::string comparison_text(const std::vector<ScheduleReport>& reports, int columns = 100);
std::string comparison_svg(const std::vector<ScheduleReport>& reports);
// {"schedules": [the JSON document of each schedule]}
std::string comparison_json(const std::vector<ScheduleReport>& reports);

// Parses any of "F=1,B=1,W=1,C=0"; unequal ranks are given as "F=3:4:3". Throws RequestError that
// names the wrong part.
struct Times {
  ShareTimes share;
  double transfer = 0.0;
};
Times parse_times(const std::string& text);
// Parses "8", or "8:8:6" for each rank, as MemoryLimit::most; "0" gives an empty list.
std::vector<double> parse_limits(const std::string& text);

}  // namespace trident

// What a schedule is and does, as the `schedule` command prints it.
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
  // The same of a run with these times in milliseconds, where it was measured.
  std::optional<Simulation> measured;
  double transfer = 0.0;
  MemoryLimit memory;
  // What no schedule over the same stages, times and memory can be shorter than.
  LowerBounds bounds;
};

// Validates and simulates. RequestError as validate and stage_times.
ScheduleReport make_report(const ScheduleRequest& request);
ScheduleReport make_report(Schedule schedule, const ShareTimes& times, double transfer,
                           const MemoryLimit& memory = {});

// The JSON document, a rank's actions on one line.
std::string report_json(const ScheduleReport& report);
// A title with the bubbles, the timeline and a table of ranks, `columns` wide.
std::string report_text(const ScheduleReport& report, int columns = 100);
// The prediction and, below it, what was measured; one unit of the times is a millisecond.
std::string report_svg(const ScheduleReport& report);
std::string report_chrome(const ScheduleReport& report);
// Several schedules under each other and one table: makespan, bubbles, memory, weight versions.
std::string comparison_text(const std::vector<ScheduleReport>& reports, int columns = 100);
std::string comparison_svg(const std::vector<ScheduleReport>& reports);
// {"schedules": [the document of each]}
std::string comparison_json(const std::vector<ScheduleReport>& reports);

// "F=1,B=1,W=1,C=0", any of them, unequal stages as "F=3:4:3"; RequestError naming what is wrong.
struct Times {
  ShareTimes share;
  double transfer = 0.0;
};
Times parse_times(const std::string& text);
// "8", or "8:8:6" for each rank: MemoryLimit::most, nothing for "0".
std::vector<double> parse_limits(const std::string& text);

}  // namespace trident

// What a schedule is and does, as the `schedule` command prints it.
#pragma once

#include <string>
#include <vector>

#include "scheduler/analytic.h"
#include "scheduler/simulate.h"

namespace trident {

struct ScheduleReport {
  Schedule schedule;
  AnalyticBubble analytic;
  Simulation simulation;
  std::vector<IdleTime> idle;  // [p]
};

// Validates and simulates. RequestError as validate and stage_times.
ScheduleReport make_report(const ScheduleRequest& request);
ScheduleReport make_report(Schedule schedule, const ShareTimes& times, double transfer);

// The JSON document, a rank's actions on one line.
std::string report_json(const ScheduleReport& report);
// A title with the bubbles, the timeline and a table of ranks, `columns` wide.
std::string report_text(const ScheduleReport& report, int columns = 100);
// Several schedules, one table: makespan, bubbles, memory.
std::string comparison_text(const std::vector<ScheduleReport>& reports, int columns = 100);

// "F=1,B=1,W=1,C=0", any of them, unequal stages as "F=3:4:3"; RequestError naming what is wrong.
struct Times {
  ShareTimes share;
  double transfer = 0.0;
};
Times parse_times(const std::string& text);

}  // namespace trident

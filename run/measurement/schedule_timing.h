// What `trident schedule` shows: schedules made from a request or read from a file, checked,
// simulated, and measured over real ranks.
#pragma once

#include <string>
#include <vector>

#include "run/launch/launch.h"
#include "scheduler/report.h"
#include "scheduler/schedules.h"

namespace trident {

// RequestError unless both sizes are there.
void need_sizes(const ScheduleRequest&);
// Of a schedule of that kind and those sizes. RequestError as make_report, and without sizes.
ScheduleReport report_of_kind(const ScheduleRequest&, const Times&);
// Of a CSV file (scheduler/csv.h). RequestError, with the file's name, also where the sizes or the
// room of the request are others than the file's.
ScheduleReport report_of_file(const std::string& path, const ScheduleRequest&, const Times&);
// Of several kinds under one request. RequestError with all problems.
std::vector<ScheduleReport> reports_of_kinds(const std::vector<std::string>& kinds,
                                             const ScheduleRequest&, const Times&);

// Measures all of them, one after the other, on one set of ranks: of this process, or of the job.
// RequestError where the job has another number of ranks than a schedule. Collective over the job's
// processes.
void measure(std::vector<ScheduleReport>&, const Times&, const Launch&);

// "text", "json", "csv", "svg" or "chrome"; of several "text", "json" or "svg".
// `columns`: of text.
std::string drawn(const ScheduleReport&, const std::string& format, int columns = 100);
std::string drawn(const std::vector<ScheduleReport>&, const std::string& format, int columns = 100);

}  // namespace trident

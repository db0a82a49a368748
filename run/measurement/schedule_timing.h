// Makes the reports of `trident schedule`: schedules are made from a request or read from a file,
// then checked, simulated, and measured over real ranks. Only measure() is collective.
#pragma once

#include <string>
#include <vector>

#include "run/processes/launch.h"
#include "scheduler/report.h"
#include "scheduler/schedules.h"

namespace trident {

// RequestError unless the request gives both stages and micro-batches.
void need_sizes(const ScheduleRequest&);
// The report of a schedule of the request's kind and sizes. RequestError as make_report(), and
// without sizes.
ScheduleReport report_of_kind(const ScheduleRequest&, const Times&);
// The report of a schedule in a CSV file (scheduler/csv.h). RequestErrors begin with the file's
// name; one is that the request's sizes or memory limits don't match the file.
ScheduleReport report_of_file(const std::string& path, const ScheduleRequest&, const Times&);
// The reports of several kinds for one request. RequestError with all problems.
std::vector<ScheduleReport> reports_of_kinds(const std::vector<std::string>& kinds,
                                             const ScheduleRequest&, const Times&);

// Measures the schedules one after the other on the ranks of this process, or of the MPI job.
// RequestError where the job's number of ranks differs from a schedule's stages. Collective over
// the job's processes.
void measure(std::vector<ScheduleReport>&, const Times&, const Launch&);

// Draws one report as "text", "json", "csv", "svg" or "chrome", or several as "text", "json" or
// "svg". `columns` is the line width of text.
std::string drawn(const ScheduleReport&, const std::string& format, int columns = 100);
std::string drawn(const std::vector<ScheduleReport>&, const std::string& format, int columns = 100);

}  // namespace trident

#include "run/measurement/schedule_timing.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/files/file.h"
#include "parallel/transport/transport.h"
#include "run/measurement/timed_stages.h"
#include "scheduler/csv.h"

namespace trident {
namespace {

ScheduleRequest timed(ScheduleRequest request, const Times& times) {
  request.times = times.share;
  request.transfer = times.transfer;
  return request;
}

}  // namespace

void need_sizes(const ScheduleRequest& request) {
  if (request.stages > 0 && request.microbatches > 0) return;
  throw RequestError("trident schedule: give --stages and --microbatches");
}

ScheduleReport report_of_kind(const ScheduleRequest& request, const Times& times) {
  need_sizes(request);
  return make_report(timed(request, times));
}

ScheduleReport report_of_file(const std::string& path, const ScheduleRequest& request,
                              const Times& times) {
  const std::string text = read_file(path);
  try {
    ScheduleReport report =
        make_report(from_csv(text, "file"), times.share, times.transfer, request.memory);
    const auto same = [](const char* option, int asked, int has) {
      if (asked == 0 || asked == has) return;
      throw RequestError(
          fmt::format("{} {}, but the file has {}; leave it out", option, asked, has));
    };
    same("--stages", request.stages, report.schedule.stages);
    same("--microbatches", request.microbatches, report.schedule.microbatches);
    same("--chunks", request.chunks, report.schedule.chunks);
    check_memory(report.schedule, request.memory);
    return report;
  } catch (const RequestError& error) {
    throw error.at(path + ": ");
  }
}

std::vector<ScheduleReport> reports_of_kinds(const std::vector<std::string>& kinds,
                                             const ScheduleRequest& request, const Times& times) {
  need_sizes(request);
  std::vector<ScheduleReport> reports;
  std::vector<std::string> problems;
  for (const std::string& kind : kinds) {
    ScheduleRequest one = timed(request, times);
    one.kind = kind;
    try {
      reports.push_back(make_report(without_unsupported_sizes(one)));
    } catch (const RequestError& error) {
      for (const std::string& problem : error.problems()) problems.push_back(problem);
    }
  }
  if (!problems.empty()) throw RequestError(problems);
  return reports;
}

void measure(std::vector<ScheduleReport>& reports, const Times& times, const Launch& launch) {
  for (const ScheduleReport& report : reports) {
    if (!launch.mpi || launch.ranks == report.schedule.stages) continue;
    throw RequestError(
        fmt::format("trident schedule: {} stages need as many ranks, mpirun started {}",
                    report.schedule.stages, launch.ranks));
  }
  launch.start->agree({});
  launch.start->done();
  std::unique_ptr<Transport> mpi;
  if (launch.mpi) mpi = make_mpi_transport({.timeout = std::chrono::hours(24)});
  for (ScheduleReport& report : reports) {
    const StageTimes stages = stage_times(report.schedule, times.share);
    if (mpi) {
      report.measured = run_timed(report.schedule, stages, times.transfer, *mpi);
    } else {
      report.measured = run_timed_local(report.schedule, stages, times.transfer);
    }
  }
}

std::string drawn(const ScheduleReport& report, const std::string& format, int columns) {
  if (format == "text") return report_text(report, columns);
  if (format == "json") return report_json(report);
  if (format == "csv") return to_csv(report.schedule);
  return format == "svg" ? report_svg(report) : report_chrome(report);
}

std::string drawn(const std::vector<ScheduleReport>& reports, const std::string& format,
                  int columns) {
  if (format == "text") return comparison_text(reports, columns);
  return format == "svg" ? comparison_svg(reports) : comparison_json(reports);
}

}  // namespace trident

// `schedule`: makes, checks, simulates and draws pipeline schedules.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "app/options.h"
#include "core/error.h"
#include "core/file.h"
#include "scheduler/csv.h"
#include "scheduler/report.h"
#include "scheduler/schedules.h"
#include "scheduler/timeline.h"

namespace trident::app {
namespace {

struct Options {
  ScheduleRequest request;
  std::string times = "F=1,B=1,W=1,C=0", file, format = "text", out;
};

void add_sizes(CLI::App& command, Options& options, bool needed) {
  command.add_option("--stages", options.request.stages, "Pipeline ranks P")
      ->required(needed)
      ->check(CLI::Range(1, 1 << 16));
  command.add_option("--microbatches", options.request.microbatches, "Micro-batches M")
      ->required(needed)
      ->check(CLI::Range(1, 1 << 24));
  command.add_option("--chunks", options.request.chunks, "Stages of each rank; 0: the kind's own");
  command.add_option("--group-size", options.request.group_size,
                     "Micro-batches of a group in the interleaved kinds; 0: the rule's");
  command
      .add_option("--max-in-flight", options.request.max_in_flight,
                  "Micro-batches' worth that a rank may hold; 0: any number")
      ->check(CLI::Range(0.0, 1e9));
  command
      .add_option("--times", options.times,
                  "One micro-batch through one rank's whole share: F, B, W; a transfer C")
      ->capture_default_str();
}

void write(const std::string& text, const std::string& out) {
  if (out.empty()) {
    fmt::print("{}", text);
  } else {
    write_file_atomic(out, text);
  }
}

ScheduleRequest timed(ScheduleRequest request, const Times& times) {
  request.times = times.share;
  request.transfer = times.transfer;
  return request;
}

ScheduleReport report_of(const Options& options) {
  const Times times = parse_times(options.times);
  if (options.file.empty()) return make_report(timed(options.request, times));
  try {
    return make_report(from_csv(read_file(options.file), "file"), times.share, times.transfer);
  } catch (const RequestError& error) {
    throw error.at(options.file + ": ");
  }
}

std::string drawn(const ScheduleReport& report, const std::string& format) {
  if (format == "text") return report_text(report);
  if (format == "json") return report_json(report);
  if (format == "csv") return to_csv(report.schedule);
  Timeline timeline;
  timeline.title = fmt::format("{}, {} stages, {} micro-batches: bubble {:.2f}%",
                               report.schedule.kind, report.schedule.stages,
                               report.schedule.microbatches, 100 * report.simulation.bubble.ratio);
  timeline.events = timeline_events(report.schedule, report.simulation, 1000.0);
  return format == "svg" ? timeline_svg(timeline) : chrome_trace(timeline) + "\n";
}

}  // namespace

void add_schedule(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("schedule", "Make, check, simulate and draw a schedule");
  auto options = std::make_shared<Options>();
  auto* kind = command->add_option("--kind", options->request.kind, "The schedule");
  auto* file = command->add_option("--file", options->file, "A schedule of your own, as CSV");
  kind->excludes(file);
  add_sizes(*command, *options, false);
  command->add_option("--format", options->format, "text, json, csv, svg or chrome")
      ->check(CLI::IsMember({"text", "json", "csv", "svg", "chrome"}))
      ->capture_default_str();
  command->add_option("--out", options->out, "A file instead of standard output");
  auto* compare = command->add_subcommand("compare", "Several kinds under each other");
  auto kinds = std::make_shared<std::vector<std::string>>();
  compare->add_option("kinds", *kinds, "KIND,KIND,...")->required()->delimiter(',');
  add_sizes(*compare, *options, true);
  compare->callback([=, &action] {
    action = [=] {
      const Times times = parse_times(options->times);
      std::vector<ScheduleReport> reports;
      for (const std::string& name : *kinds) {
        ScheduleRequest request = options->request;
        request.kind = name;
        reports.push_back(make_report(timed(request, times)));
      }
      write(comparison_text(reports), options->out);
      return 0;
    };
  });
  command->callback([=, &action] {
    if (compare->parsed()) return;
    action = [=] {
      if (kind->count() + file->count() == 0) {
        throw RequestError("trident schedule: give --kind or --file");
      }
      write(drawn(report_of(*options), options->format), options->out);
      return 0;
    };
  });
}

}  // namespace trident::app

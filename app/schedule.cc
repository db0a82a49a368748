// `schedule`: makes, checks, simulates, measures and draws pipeline schedules.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "app/options.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/process/terminal.h"
#include "run/measurement/schedule_timing.h"

namespace trident::app {
namespace {

struct ScheduleOptions {
  ScheduleRequest request{.stages = 0, .microbatches = 0};
  std::string times = "F=1,B=1,W=1,C=0", max_in_flight = "0", file, format = "text", out;
  bool measure = false;
};

void add_options(CLI::App& command, ScheduleOptions& options,
                 const std::vector<std::string>& formats) {
  command.add_option("--stages", options.request.stages, "Pipeline ranks P")
      ->check(CLI::Range(1, 1 << 16));
  command.add_option("--microbatches", options.request.microbatches, "Micro-batches M")
      ->check(CLI::Range(1, 1 << 24));
  command.add_option("--chunks", options.request.chunks, "Stages of each rank; 0: the kind's own");
  command.add_option("--group-size", options.request.group_size,
                     "Micro-batches of a group in the interleaved kinds; 0: the rule's");
  command.add_option("--max-in-flight", options.max_in_flight,
                     "Micro-batches' worth that a rank may hold, or N:N:... for each rank; 0: any "
                     "number");
  command
      .add_option("--kept-for-weights", options.request.memory.kept_for_weights,
                  "Fraction of the activations saved by F that W still needs after I")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--objective",
          [&options](const std::string& name) {
            options.request.objective = name == "span"       ? Objective::span
                                        : name == "makespan" ? Objective::makespan
                                                             : Objective::step;
          },
          "The time that auto minimises: makespan, the longest span of a rank, or that of the two "
          "which a "
          "training step takes (step)")
      ->check(CLI::IsMember({"step", "makespan", "span"}));
  command
      .add_option("--time-limit", options.request.search_seconds,
                  "Seconds that auto may search; 0: about one, with the same result everywhere")
      ->check(CLI::Range(0.0, 1e6));
  command
      .add_option("--times", options.times,
                  "One micro-batch through one rank's whole share: F, B, W; a transfer C")
      ->capture_default_str();
  command.add_flag("--measure", options.measure,
                   "Run it on ranks of this process or of mpirun, the times in milliseconds");
  command.add_option("--format", options.format, fmt::format("{}", fmt::join(formats, ", ")))
      ->check(CLI::IsMember(formats))
      ->capture_default_str();
  command.add_option("--out", options.out, "A file instead of standard output");
}

void write(const std::string& text, const std::string& out) {
  if (out.empty()) {
    fmt::print("{}", text);
  } else {
    write_file(out, text);
  }
}

// The width of the terminal; 100 without one.
int columns_of(const ScheduleOptions& options) {
  const int columns = options.out.empty() ? terminal_of(STDOUT_FILENO).columns : 0;
  return columns > 0 ? columns : 100;
}

// Splits the lists at commas. Keeps empty kinds, which are reported later.
std::vector<std::string> separated(const std::vector<std::string>& lists) {
  std::vector<std::string> kinds;
  for (const std::string& list : lists) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      kinds.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return kinds;
}

ScheduleRequest request_of(const ScheduleOptions& options, const Launch& launch) {
  ScheduleRequest request = options.request;
  request.memory.most = parse_limits(options.max_in_flight);
  if (options.measure && launch.mpi && request.search_seconds > 0) {
    throw RequestError(
        "--time-limit: each process would find another schedule; write it with --format csv, then "
        "measure --file");
  }
  return request;
}

int show_one(const ScheduleOptions& options, bool kind_given, const Launch& launch) {
  if (options.measure) launch.start->join("schedule --measure");
  const Times times = parse_times(options.times);
  const ScheduleRequest request = request_of(options, launch);
  need_writable("--out", options.out);
  if (options.file.empty() && !kind_given) {
    throw RequestError("trident schedule: give --kind or --file");
  }
  std::vector<ScheduleReport> reports{options.file.empty()
                                          ? report_of_kind(request, times)
                                          : report_of_file(options.file, request, times)};
  if (options.measure) measure(reports, times, launch);
  if (launch.leads) write(drawn(reports.front(), options.format, columns_of(options)), options.out);
  return 0;
}

int compare(const ScheduleOptions& options, const std::vector<std::string>& kinds,
            const Launch& launch) {
  if (options.measure) launch.start->join("schedule compare --measure");
  const Times times = parse_times(options.times);
  const ScheduleRequest request = request_of(options, launch);
  need_sizes(request);
  need_writable("--out", options.out);
  std::vector<ScheduleReport> reports = reports_of_kinds(kinds, request, times);
  if (options.measure) measure(reports, times, launch);
  if (launch.leads) write(drawn(reports, options.format, columns_of(options)), options.out);
  return 0;
}

}  // namespace

void add_schedule(CLI::App& app, const Launch& launch, Action& action) {
  auto* command = app.add_subcommand("schedule", "Make, check, simulate, measure, draw a schedule");
  auto options = std::make_shared<ScheduleOptions>();
  auto* kind = command->add_option("--kind", options->request.kind, "The schedule");
  auto* file = command->add_option("--file", options->file, "A schedule of your own, as CSV");
  kind->excludes(file);
  add_options(*command, *options, {"text", "json", "csv", "svg", "chrome"});
  auto* several = command->add_subcommand("compare", "Compare several kinds");
  auto compared = std::make_shared<ScheduleOptions>();
  auto kinds = std::make_shared<std::vector<std::string>>();
  several
      ->add_option("kinds", *kinds,
                   "KIND,KIND,...; --chunks and --group-size go to those that "
                   "have a choice")
      ->required();
  add_options(*several, *compared, {"text", "json", "svg"});
  several->callback([=, &launch, &action] {
    action = [=, &launch] { return compare(*compared, separated(*kinds), launch); };
  });
  command->callback([=, &launch, &action] {
    if (several->parsed()) return;
    const bool kind_given = kind->count() > 0;
    action = [=, &launch] { return show_one(*options, kind_given, launch); };
  });
}

}  // namespace trident::app

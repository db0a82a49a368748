// `report`: makes the page of one run, or of several side by side, from the files in their folders.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/options.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "report/run_report.h"

namespace trident::app {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out, format = "text";
};

int report(const ReportOptions& options, const Launch& launch) {
  // The rates known by now, including those of later runs.
  const BestRates known = read_best_rates(rates_file(launch));
  std::vector<ReportedRun> runs;
  std::vector<std::string> directories = options.runs;
  for (std::string& directory : directories) {
    while (directory.size() > 1 && directory.ends_with('/')) directory.pop_back();
    runs.push_back(read_run(directory, known));
    // "." and ".." say nothing as the name of a run.
    if (const auto last = std::filesystem::path(directory).filename();
        last == "." || last == "..") {
      std::error_code none;
      runs.back().name = std::filesystem::weakly_canonical(directory, none).string();
    }
  }
  std::string out = options.out;
  if (out.empty()) out = runs.size() == 1 ? directories.front() + "/report.html" : "report.html";
  if (out == "-" && options.format == "json") {
    throw RequestError("--out: - is for the page; --format json reports where it was written");
  }
  if (out != "-") need_writable("--out", out);
  const std::string page = run_report(runs);
  if (out == "-") {
    fmt::print("{}", page);
    return 0;
  }
  write_file(out, page);
  if (options.format == "json") {
    fmt::print("{}\n", json_text(nlohmann::ordered_json{{"wrote", out}, {"runs", directories}}));
  } else {
    fmt::print("wrote {}\n", printable(out));
  }
  return 0;
}

}  // namespace

void add_report(CLI::App& app, const Launch& launch, Action& action) {
  auto* command = app.add_subcommand(
      "report", "Draw a run, also one that is running or was killed, or several side by side");
  auto options = std::make_shared<ReportOptions>();
  command->add_option("runs", options->runs, "The folders of runs (logging.dir)")->required();
  command->add_option("--out", options->out,
                      "The page, or - for standard output (of one run its report.html, else "
                      "report.html here)");
  add_format_option(*command, options->format);
  command->callback([options, &launch, &action] {
    action = [options, &launch] { return report(*options, launch); };
  });
}

}  // namespace trident::app

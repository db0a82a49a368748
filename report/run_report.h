// report.html: one or several runs in one file that needs no network, drawn from the contents of
// their folders.
#pragma once

#include <string>
#include <vector>

#include "report/iteration_metrics.h"
#include "report/run_about.h"
#include "scheduler/timeline.h"
#include "settings/config.h"

namespace trident {

struct ReportedRun {
  std::string name;
  std::string config;  // JSON text, every default filled in
  RunAbout about;
  std::vector<IterationMetrics> history;
  std::vector<std::string> timelines;  // as timeline_json() writes them
};

// Reads the run in `directory` (logging.dir): metrics.jsonl and config.json, and run.json and
// timeline.json if they exist. Throws RequestError if a file can't be read, or if there is no
// metrics file. `known`: rates of its machines that were found later, for its MFU.
ReportedRun read_run(const std::string& directory, const BestRates& known = {});

// A timeline as JSON: {title, rows, events}. An event is [row, category, start and duration in
// microseconds, name, stage, micro-batch, bytes]; an unknown number is -1.
std::string timeline_json(const Timeline&);
// The timelines in a folder's timeline.json, which is a list. Entries that are not timelines are
// left out. A file that is too large for a page is left out completely.
std::vector<std::string> timelines_in(const std::string& directory);

// The page: facts, resumptions, curves over iterations, tokens or time (of more than 4,000
// iterations at most that many means, with their ranges), step time by part, bytes by group, bubble
// of each rank, memory against the plan, timelines, config and sample. Several runs are drawn next
// to each other. Each picture is a <figure> with an id, which the page's script (report/page) draws
// as SVG.
std::string run_report(const std::vector<ReportedRun>&);

}  // namespace trident

// report.html: runs in one file that needs no network, drawn from what their folders hold.
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

// The run whose files lie in `directory` (logging.dir): metrics.jsonl and config.json, and run.json
// and timeline.json where they are. RequestError where one can't be read, or there is no metrics.
// `known`: rates of its machines that were found since, by which MFU is told.
ReportedRun read_run(const std::string& directory, const BestRates& known = {});

// A timeline as JSON: {title, rows, events}, an event being [row, category, start and duration in
// microseconds, name, stage, micro-batch, bytes], numbers -1 where there is none.
std::string timeline_json(const Timeline&);
// Those in a folder's timeline.json, which is a list of them; what isn't one is left out, and so is
// the whole file where it is larger than a page should be.
std::vector<std::string> timelines_in(const std::string& directory);

// The page: facts, where it was started again, curves over iterations, tokens or time (of more than
// 4,000 iterations as many means, with their ranges), step time by part, bytes by group, bubble of
// each rank, memory beside the plan, timelines, config and sample. Several runs beside each other.
// Each picture is a <figure> with an id, drawn by the page's script (report/page) into
// SVG.
std::string run_report(const std::vector<ReportedRun>&);

}  // namespace trident

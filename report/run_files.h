// The files of a run under logging.dir, written by world rank 0 (docs/reports.md).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "report/iteration_metrics.h"
#include "report/metrics_file.h"
#include "report/run_about.h"
#include "report/tensorboard.h"
#include "scheduler/timeline.h"
#include "settings/config.h"

namespace trident {

class RunFiles {
 public:
  // Makes the directory. Throws RequestError if it holds metrics.jsonl that may not be overwritten.
  // `written`: LoadedConfig::written, "" if it is not known. `again`: an earlier attempt has
  // failed, and its files may be overwritten. `after`: the run resumes after this iteration.
  // Contents of later iterations are removed from its files; the rest stays. `about`: facts about
  // this start. The facts of earlier starts stay if the run resumes.
  explicit RunFiles(const Config&, const std::string& written = "", bool again = false,
                    std::optional<std::int64_t> after = {}, const RunAbout& about = {});
  void write(const IterationMetrics&);
  void sync_metrics() { metrics_.sync(); }
  // Adds the timelines of an iteration to the timelines drawn before. Unless `iteration` is 0, also
  // writes them to separate files with its number in their names.
  void write_timeline(std::int64_t iteration, const Timeline& predicted, const Timeline& measured);
  // Writes report.html from the current contents of the folder. `rates`: the rates known by now,
  // for run.json.
  void write_report(const BestRates& rates);
  const std::vector<std::string>& written() const { return written_; }

  // The contents of run.json in a folder; the default if there is none.
  static RunAbout about(const std::string& directory);

 private:
  std::string directory_;
  MetricsFile metrics_;
  std::optional<TensorBoardWriter> tensorboard_;
  RunAbout about_;
  std::vector<std::string> timelines_;  // as JSON
  std::vector<std::string> written_;
};

// Adds facts that are known only after the end of a run to its run.json, and draws its report
// again: a text that the weights have generated ("": none), and rates of its machines.
void add_to_report(const std::string& directory, const std::string& sample, const BestRates&);

}  // namespace trident

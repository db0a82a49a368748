// The files of a run, written by world rank 0 under logging.dir (docs/reports.md).
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
  // Makes the directory; RequestError where it holds metrics.jsonl and may not be overwritten.
  // `written`: LoadedConfig::written, "" where it is not known. `again`: an earlier attempt has
  // failed, and what it has left may be overwritten. `after`: the run goes on after this iteration,
  // so what its files hold of later ones goes, and the rest stays.
  // `about`: of this start; those before it stay where the run goes on.
  explicit RunFiles(const Config&, const std::string& written = "", bool again = false,
                    std::optional<std::int64_t> after = {}, const RunAbout& about = {});
  void write(const IterationMetrics&);
  void sync_metrics() { metrics_.sync(); }
  // Of an iteration, after those that were drawn before; as files of its own, too, by its number,
  // unless that is 0.
  void write_timeline(std::int64_t iteration, const Timeline& predicted, const Timeline& measured);
  // report.html, of what the folder holds by then. `rates`: those that are known by then, for
  // run.json.
  void write_report(const BestRates& rates);
  const std::vector<std::string>& written() const { return written_; }

  // What run.json of a folder says; the default where there is none.
  static RunAbout about(const std::string& directory);

 private:
  std::string directory_;
  MetricsFile metrics_;
  std::optional<TensorBoardWriter> tensorboard_;
  RunAbout about_;
  std::vector<std::string> timelines_;  // as JSON
  std::vector<std::string> written_;
};

// Adds what is known only after the end of a run to its run.json, and draws its report anew: a text
// that the weights have made ("": none), and rates of its machines.
void add_to_report(const std::string& directory, const std::string& sample, const BestRates&);

}  // namespace trident

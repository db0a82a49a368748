// The files of a run, written by world rank 0 under logging.dir (README: "Your own run").
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "scheduler/timeline.h"
#include "training/report/iteration_metrics.h"
#include "training/report/metrics_file.h"
#include "training/report/tensorboard.h"

namespace trident {

class RunFiles {
 public:
  // Makes the directory; RequestError where it holds metrics.jsonl and may not be overwritten.
  // `written`: LoadedConfig::written, "" where it is not known. `again`: an earlier attempt has
  // failed, and what it has left may be overwritten. `after`: the run goes on after this iteration,
  // so what its files hold of later ones goes, and the rest stays.
  explicit RunFiles(const Config&, const std::string& written = "", bool again = false,
                    std::optional<std::int64_t> after = {});
  void write(const IterationMetrics&);
  void sync_metrics() { metrics_.sync(); }
  void write_timeline(const Timeline& predicted, const Timeline& measured);
  void write_report(const std::string& html);
  const std::vector<std::string>& written() const { return written_; }

 private:
  std::string directory_;
  MetricsFile metrics_;
  std::optional<TensorBoardWriter> tensorboard_;
  std::vector<std::string> written_;
};

}  // namespace trident

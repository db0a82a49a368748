// The files that world rank 0 writes about a run (report/run_files.h), written by a thread
// of its own: a slow disk holds up no step, and a full one no training. What fails, making the
// files included, is told once for each kind of file, and tried again with the next iteration.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/process/background.h"
#include "report/iteration_metrics.h"
#include "report/run_files.h"
#include "scheduler/timeline.h"
#include "settings/config.h"

namespace trident {

class LogWriter {
 public:
  // Makes the files. RequestError as RunFiles; any other failure is told as below.
  // `after`: the run goes on after this iteration, and so do its files.
  explicit LogWriter(const Config&, const std::string& written = "",
                     std::optional<std::int64_t> after = {}, RunAbout about = {});

  // These return at once.
  void write(const IterationMetrics&);
  void sync_metrics();  // lines that were written before
  void write_timeline(std::int64_t iteration, const Timeline& predicted, const Timeline& measured);
  void write_report(const BestRates&);
  // A file of the logs that somebody else could not write.
  void failed(const std::string& what, const std::string& why);

  // Waits until all is written. Paths of what was written.
  std::vector<std::string> finish();
  // What has failed since the last call, each a line for people.
  std::vector<std::string> take_messages();

 private:
  void make_files();
  void post(const std::string& what, std::function<void(RunFiles&)> task);

  Config config_;
  std::string written_config_;
  std::optional<std::int64_t> after_;
  RunAbout about_;
  bool ours_ = false;                             // what lies there is this run's
  std::unique_ptr<RunFiles> files_;               // null until they could be made
  std::mutex mutex_;                              // guards what follows
  std::map<std::string, std::int64_t> failures_;  // writes that failed, by kind
  std::vector<std::string> messages_;
  BackgroundTasks tasks_{10'000};  // last: its tasks use all of the above
};

}  // namespace trident

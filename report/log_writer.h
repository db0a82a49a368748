// Writes the files of world rank 0 about a run (report/run_files.h) on a separate thread: a slow
// disk delays no step, and a full disk stops no training. Any failure, also to make the files, is
// reported once for each kind of file, and the write is tried again with the next iteration.
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
  // Makes the files. Throws RequestError as RunFiles does; any other failure is reported by
  // take_messages(). `after`: the run resumes after this iteration, and its files are continued.
  explicit LogWriter(const Config&, const std::string& written = "",
                     std::optional<std::int64_t> after = {}, RunAbout about = {});

  // These functions return at once.
  void write(const IterationMetrics&);
  void sync_metrics();  // syncs the lines written before to the disk
  void write_timeline(std::int64_t iteration, const Timeline& predicted, const Timeline& measured);
  void write_report(const BestRates&);
  // Reports a log file that another component could not write.
  void failed(const std::string& what, const std::string& why);

  // Waits until all files are written. Returns the paths of the written files.
  std::vector<std::string> finish();
  // The failures since the last call, each as a line for people.
  std::vector<std::string> take_messages();

 private:
  void make_files();
  void post(const std::string& what, std::function<void(RunFiles&)> task);

  Config config_;
  std::string written_config_;
  std::optional<std::int64_t> after_;
  RunAbout about_;
  bool ours_ = false;                             // existing files belong to this run
  std::unique_ptr<RunFiles> files_;               // null until the files could be made
  std::mutex mutex_;                              // guards the members below
  std::map<std::string, std::int64_t> failures_;  // writes that failed, by kind
  std::vector<std::string> messages_;
  BackgroundTasks tasks_{10'000};  // last: its tasks use all of the above
};

}  // namespace trident

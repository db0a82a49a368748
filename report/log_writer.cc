#include "report/log_writer.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace trident {
namespace {

constexpr auto all_files = "all log files";

}  // namespace

LogWriter::LogWriter(const Config& config, const std::string& written,
                     std::optional<std::int64_t> after, RunAbout about)
    : config_(config), written_config_(written), after_(after), about_(std::move(about)) {
  try {
    make_files();
  } catch (const RequestError&) {
    throw;
  } catch (const std::exception& error) {
    failed(all_files, error.what());
  }
  ours_ = true;
}

void LogWriter::make_files() {
  files_ = std::make_unique<RunFiles>(config_, written_config_, ours_, after_, about_);
  const std::lock_guard lock(mutex_);
  if (failures_.erase(all_files) == 0) return;
  messages_.push_back("logging resumes: files can be written to " + config_.logging.dir + " again");
}

void LogWriter::failed(const std::string& what, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failures_[what]++ > 0 || (what != all_files && failures_.contains(all_files))) return;
  messages_.push_back(
      fmt::format("LOGGING FAILED ({}): {}; training continues without these files", what, why));
}

void LogWriter::post(const std::string& what, std::function<void(RunFiles&)> task) {
  const bool taken = tasks_.post([this, what, task = std::move(task)] {
    try {
      if (!files_) make_files();
      task(*files_);
    } catch (const std::exception& error) {
      failed(what, error.what());
    }
  });
  if (!taken) failed(what, config_.logging.dir + ": writing there takes longer than training");
}

void LogWriter::write(const IterationMetrics& metrics) {
  post("metrics", [metrics](RunFiles& files) { files.write(metrics); });
}

void LogWriter::sync_metrics() {
  post("metrics to the disk", [](RunFiles& files) { files.sync_metrics(); });
}

void LogWriter::write_timeline(std::int64_t iteration, const Timeline& predicted,
                               const Timeline& measured) {
  post("timeline", [=](RunFiles& files) { files.write_timeline(iteration, predicted, measured); });
}

void LogWriter::write_report(const BestRates& rates) {
  post("report", [rates](RunFiles& files) { files.write_report(rates); });
}

std::vector<std::string> LogWriter::finish() {
  tasks_.drain();
  const std::lock_guard lock(mutex_);
  const auto lost = failures_.find("metrics");
  if (lost != failures_.end()) {
    messages_.push_back(fmt::format("LOGGING FAILED: {} of the metrics of {} could not be written",
                                    counted(lost->second, "line"), config_.logging.dir));
    failures_.erase(lost);
  }
  return files_ ? files_->written() : std::vector<std::string>{};
}

std::vector<std::string> LogWriter::take_messages() {
  const std::lock_guard lock(mutex_);
  return std::exchange(messages_, {});
}

}  // namespace trident

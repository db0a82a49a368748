#include "app/printer.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/printable.h"
#include "core/process.h"
#include "training/run/summary.h"

namespace trident::app {

void Printer::out(std::string text) {
  tasks_.post([text = std::move(text)] {
    const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (whole && std::fflush(stdout) == 0) return;
    const int reason = errno;
    // Also for main's look at the stream when the command has ended: the run's code stands.
    if (std::freopen("/dev/null", "w", stdout) == nullptr) std::clearerr(stdout);
    if (reason == EPIPE) return;
    print_error(fmt::format("standard output: {}; the run goes on without printing",
                            std::strerror(reason)));
  });
}

void Printer::error(std::string line) {
  tasks_.post([line = std::move(line)] { print_error(printable_lines(line)); });
}

void Progress::show(const IterationMetrics& m) {
  const double now = static_cast<double>(read_clock().wall_ns) * 1e-9;
  const bool first = first_ == 0;
  if (first) first_ = m.iteration, begin_ = now;
  const double left = first ? -1
                            : (now - begin_) / static_cast<double>(m.iteration - first_) *
                                  static_cast<double>(config_.training.train_iters - m.iteration);
  const bool last = m.iteration == config_.training.train_iters;
  const bool ends_line = last || !m.validation_loss.empty();
  const std::int64_t every = config_.logging.log_interval;
  const bool due = every > 0 ? m.iteration % every == 0 : live_ || now - shown_ >= 5;
  if (!ends_line && !first && !due) return;
  const std::string line = progress_line(config_, m, left);
  if (live_) {
    printer_.out("\r\033[K" + line + (ends_line ? "\n" : ""));
  } else {
    printer_.out(line + "\n");
    shown_ = now;
  }
}

}  // namespace trident::app

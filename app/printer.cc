#include "app/printer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/printable.h"
#include "base/process/process.h"
#include "base/process/terminal.h"
#include "base/units.h"
#include "run/startup/summary.h"

namespace trident::app {

void Printer::out(std::string text) {
  tasks_.post([text = std::move(text)] {
    const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (whole && std::fflush(stdout) == 0) return;
    const int reason = errno;
    // Redirecting or clearing the stream also hides the failure from main(), which checks the
    // stream at the end. So the run keeps its exit code.
    if (std::freopen("/dev/null", "w", stdout) == nullptr) std::clearerr(stdout);
    if (reason == EPIPE) return;
    print_error(fmt::format("standard output: {}; the run continues without printing",
                            std::strerror(reason)));
  });
}

void Printer::error(std::string line) {
  tasks_.post([line = std::move(line)] { print_error(printable_lines(line)); });
}

void Printer::live(const std::string& line, bool ends) {
  tasks_.post([text = "\r\033[K" + line + (ends ? "\n" : "")] {
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
  });
}

namespace {

std::string clock_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

double now_seconds() {
  return static_cast<double>(read_clock().wall_ns) * 1e-9;
}

}  // namespace

void Progress::show(const IterationMetrics& m) {
  constexpr double kBetweenLines = 15, kBetweenDrawings = 0.1;  // seconds
  const double now = now_seconds();
  const bool first = first_ == 0;
  if (first) first_ = m.iteration, begin_ = kept_ = now;
  ProgressView view{.clock = clock_time()};
  if (!first) {
    view.seconds_left = (now - begin_) / static_cast<double>(m.iteration - first_) *
                        static_cast<double>(config_.training.train_iters - m.iteration);
  }
  const std::int64_t every = config_.logging.log_interval;
  const bool keeps = m.iteration == config_.training.train_iters || !m.validation_loss.empty() ||
                     (first && !live_) ||
                     (every > 0 ? m.iteration % every == 0 : now - kept_ >= kBetweenLines);
  if (!keeps && (!live_ || (!first && now - drawn_ < kBetweenDrawings))) return;
  if (keeps) kept_ = now;
  drawn_ = now;
  if (beside_) return printer_.error(progress_line(config_.training.train_iters, m, view));
  if (!live_) return printer_.out(progress_line(config_.training.train_iters, m, view) + "\n");
  const Terminal terminal = terminal_of(STDOUT_FILENO);
  view.columns = terminal.columns - 1;  // some terminals wrap after the last column
  view.colour = terminal.colour;
  view.bar = true;
  printer_.out("\r\033[K" + progress_line(config_.training.train_iters, m, view) +
               (keeps ? "\n" : ""));
}

TokenizingLine::~TokenizingLine() {
  if (open_) printer_.live("", false);  // an error message follows, so clear the line
}

void TokenizingLine::show(const TokenizingProgress& p) {
  if (p.seconds < shown_) shown_ = 0;  // another source begins
  if (!live_ && p.seconds - shown_ < 10) return;
  shown_ = p.seconds;
  open_ = live_ && !p.ends;
  const double rate = static_cast<double>(p.read) / std::max(p.seconds, 1e-9);
  std::string line =
      fmt::format("tokenizing: {:.0f}% of {}, {} tokens, {}/s, {:.0f} s left",
                  100.0 * static_cast<double>(p.read) /
                      static_cast<double>(std::max<std::uint64_t>(p.total, 1)),
                  bytes_text(static_cast<double>(p.total)), p.tokens, bytes_text(rate),
                  static_cast<double>(p.total - std::min(p.read, p.total)) / std::max(rate, 1.0));
  if (live_) {
    const auto columns = static_cast<std::size_t>(terminal_of(STDERR_FILENO).columns);
    if (columns > 0) line.resize(std::min(line.size(), columns - 1));
    printer_.live(line, p.ends);
  } else {
    printer_.error(line);
  }
}

CountingLine::CountingLine(Printer& printer, bool live, std::string what, std::string unit)
    : printer_(printer),
      live_(live),
      what_(std::move(what)),
      unit_(std::move(unit)),
      begin_(now_seconds()),
      shown_(live ? 0 : begin_) {}

CountingLine::~CountingLine() {
  if (open_) printer_.live("", false);  // an error message follows, so clear the line
}

void CountingLine::show(std::int64_t done, std::int64_t total) {
  const double now = now_seconds();
  const bool ends = done >= total;
  if (now - shown_ < (live_ ? 0.1 : 10) && !(live_ && ends)) return;
  shown_ = now;
  open_ = live_ && !ends;
  const double part =
      static_cast<double>(done) / static_cast<double>(std::max<std::int64_t>(1, total));
  std::string line = fmt::format("{}: {:.0f}% of {} {}", what_, 100 * part, total, unit_);
  if (!ends && part > 0) line += fmt::format(", {:.0f} s left", (now - begin_) * (1 / part - 1));
  if (!live_) return printer_.error(line);
  const auto columns = static_cast<std::size_t>(terminal_of(STDERR_FILENO).columns);
  if (columns > 0) line.resize(std::min(line.size(), columns - 1));
  printer_.live(line, ends);
}

void SearchLine::show(const SearchProgress& p) {
  constexpr double between = 0.1;  // seconds
  const double now = static_cast<double>(read_clock().wall_ns) * 1e-9;
  const bool ends = p.evaluated >= p.layouts;
  if (!ends && now - drawn_ < between) return;
  drawn_ = now;
  std::string line;
  if (!ends) {
    line = fmt::format("searching on {}: {:.0f}% of {} layouts, {} simulated",
                       counted(p.ranks, "rank"),
                       100.0 * static_cast<double>(p.evaluated) / static_cast<double>(p.layouts),
                       p.layouts, p.simulated);
    if (p.best_seconds > 0) line += fmt::format(", the fastest takes {:.4g} s", p.best_seconds);
    const auto columns = static_cast<std::size_t>(terminal_of(STDERR_FILENO).columns);
    if (columns > 0) line.resize(std::min(line.size(), columns - 1));
  }
  printer_.live(line, false);
  if (ends) printer_.drain();
}

}  // namespace trident::app

// Prints the output of a running command. A separate thread prints, so a stopped terminal (Ctrl-S)
// or a pipe without a reader delays no training step. A failure to print ends only the printing.
// The functions of Printer return at once, except drain(); they may be called from any thread.
#pragma once

#include <string>

#include "base/process/background.h"
#include "datasets/tokenize.h"
#include "planner/search/layout_search.h"
#include "run/loop/trainer.h"
#include "settings/config.h"

namespace trident::app {

class Printer {
 public:
  // Prints to stdout. Reports the first failure on stderr, unless the reader has closed the pipe.
  // Prints nothing more to stdout after a failure.
  void out(std::string text);
  // Prints a line to stderr, with control characters escaped.
  void error(std::string line);
  // Replaces the current line on stderr. With `ends` the line stays and a new one begins.
  void live(const std::string& line, bool ends);
  // Waits until everything has been printed or has failed.
  void drain() { tasks_.drain(); }

 private:
  BackgroundTasks tasks_{10'000};  // drops texts while this many wait
};

// The progress lines of a training run: one per logging.log_interval iterations, or four a minute
// without it. A terminal also shows the newest iteration, redrawn at most ten times a second.
class Progress {
 public:
  // `live`: stdout is a terminal, whose line may be redrawn. `beside`: prints plain lines to
  // stderr.
  Progress(Printer& printer, const Config& config, bool live, bool beside)
      : printer_(printer), config_(config), live_(live && !beside), beside_(beside) {}

  void show(const IterationMetrics&);

 private:
  Printer& printer_;
  const Config& config_;
  bool live_, beside_;
  std::int64_t first_ = 0;  // first iteration since the start, which ended at begin_; 0: none yet
  double begin_ = 0, kept_ = 0, drawn_ = 0;
};

// Shows the progress of tokenizing: a live line on a terminal, otherwise a line every ten seconds.
class TokenizingLine {
 public:
  // `live`: stderr is a terminal.
  TokenizingLine(Printer& printer, bool live) : printer_(printer), live_(live) {}
  TokenizingLine(const TokenizingLine&) = delete;
  TokenizingLine& operator=(const TokenizingLine&) = delete;
  ~TokenizingLine();

  void show(const TokenizingProgress&);

 private:
  Printer& printer_;
  bool live_;
  double shown_ = 0;  // seconds
  bool open_ = false;
};

// Shows the progress of a count: a live line on a terminal, otherwise a line every ten seconds.
class CountingLine {
 public:
  // In "evaluating: 20% of 5000 tokens, 12 s left", `what` is "evaluating" and `unit` is "tokens".
  CountingLine(Printer& printer, bool live, std::string what, std::string unit);
  CountingLine(const CountingLine&) = delete;
  CountingLine& operator=(const CountingLine&) = delete;
  ~CountingLine();

  void show(std::int64_t done, std::int64_t total);

 private:
  Printer& printer_;
  const bool live_;
  const std::string what_, unit_;
  double begin_, shown_;  // seconds
  bool open_ = false;
};

// Shows the progress of a layout search on a terminal. The line disappears after each number of
// ranks.
class SearchLine {
 public:
  void show(const SearchProgress&);

 private:
  Printer printer_;
  double drawn_ = 0;  // seconds
};

}  // namespace trident::app

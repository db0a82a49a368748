// What a run prints while it runs. A thread of its own prints it, so a terminal that has been
// stopped (Ctrl-S) or a pipe that nobody reads holds up no step; and what can't be printed ends
// only the printing.
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
  // To stdout. The first failure is told on stderr, unless the reader has closed the pipe; nothing
  // is printed there afterwards.
  void out(std::string text);
  // A line to stderr; what a terminal would obey is escaped.
  void error(std::string line);
  // To stderr, in place of the line before; `ends`: it stays.
  void live(const std::string& line, bool ends);
  // Waits until all has been printed, or can't be.
  void drain() { tasks_.drain(); }

 private:
  BackgroundTasks tasks_{10'000};  // what comes while so many wait is dropped
};

// Lines as often as logging.log_interval says, else four a minute; on a terminal also the newest
// iteration below them, drawn anew at most ten times a second.
class Progress {
 public:
  // `live`: whether what is printed may be drawn anew. `beside`: lines alone, to stderr.
  Progress(Printer& printer, const Config& config, bool live, bool beside)
      : printer_(printer), config_(config), live_(live && !beside), beside_(beside) {}

  void show(const IterationMetrics&);

 private:
  Printer& printer_;
  const Config& config_;
  bool live_, beside_;
  std::int64_t first_ = 0;  // iteration of this start, which ended at begin_; 0: none yet
  double begin_ = 0, kept_ = 0, drawn_ = 0;
};

// How far texts have been tokenized: a live line on a terminal, else one every ten seconds.
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

// How much of something has been counted: a live line on a terminal, else one every ten seconds.
class CountingLine {
 public:
  // "evaluating: 20% of 5000 tokens, 12 s left": `what`, `unit`.
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

// How far a search of layouts is, on a terminal; it goes at the end of each number of ranks.
class SearchLine {
 public:
  void show(const SearchProgress&);

 private:
  Printer printer_;
  double drawn_ = 0;  // seconds
};

}  // namespace trident::app

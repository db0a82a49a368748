// Accounts for the time of a run that was started several times, from its metrics.jsonl after each
// start. A resumed run keeps the lines of the iterations before its checkpoint byte for byte and
// writes new lines for the iterations that it repeats, so a comparison of the file before and after
// a start finds the lost iterations. The supervisor uses it, in one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files/file.h"

namespace trident {

struct Goodput {
  std::int64_t starts = 0;
  std::int64_t iterations = 0, lost_iterations = 0;
  // Seconds. Their sum is the time of the launch.
  double training = 0;  // iterations that were not lost
  double saving = 0;    // time that training waited for checkpoints (save_pause_ms)
  double lost = 0;      // iterations that were repeated, or never saved
  double starting = 0;  // starts, loading, evaluation, the last save, interrupted iterations
  double waiting = 0;   // between starts

  double seconds() const { return training + saving + lost + starting + waiting; }
  double ratio() const { return seconds() > 0 ? training / seconds() : 0; }
};

class GoodputCounter {
 public:
  // `metrics`: the file's path; it may be missing.
  explicit GoodputCounter(std::string metrics);

  void started() { ++starts_; }
  // A start has ended, `seconds` after it began.
  void ended(double seconds);
  // A start was refused after `seconds`. It has written nothing; new lines in the file are of
  // another run.
  void refused(double seconds) { alive_ += seconds; }
  void waited(double seconds) { waiting_ += seconds; }

  std::int64_t iteration() const;  // the last one in the file; 0: none
  Goodput now() const;

 private:
  struct Line {
    std::uint64_t hash = 0;
    std::int64_t iteration = 0;
    double run = 0, pause = 0;  // seconds
  };
  std::vector<Line> read() const;
  static void read(const ReadFile& file, std::vector<Line>& lines);

  std::string metrics_;
  std::vector<Line> lines_, before_;  // before_: of earlier launches
  std::int64_t starts_ = 0, lost_iterations_ = 0;
  double lost_ = 0, alive_ = 0, waiting_ = 0;
};

// A few lines for people.
std::string text_of(const Goodput&);

}  // namespace trident

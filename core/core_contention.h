// Detects that other processes want the cores on which threads of this process compute: another
// program, or another run. A thread that waits for another thread of its rank keeps its core,
// because it resumes sooner than a sleeping thread. If the core is wanted, the thread should yield
// it, because the awaited thread may need this core.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace trident {

// The time, since its start, for which the calling thread was runnable but had no core. Returns
// nothing if the system doesn't count it (/proc/thread-self/schedstat of Linux).
std::optional<std::chrono::nanoseconds> time_without_core();

// Decides from the lost time whether cores are wanted. They are wanted after three intervals in a
// row in each of which a thread has lost more than a tenth: other processes come and go on any
// system. They are no longer wanted after ten intervals in a row in which no thread has lost a
// fiftieth.
class ContentionDetector {
 public:
  // `lost`: the time lost by the thread that has lost most in an interval of length `interval`.
  void add(std::chrono::nanoseconds interval, std::chrono::nanoseconds lost);
  bool found() const { return found_; }

 private:
  bool found_ = false;
  int in_a_row_ = 0;  // intervals in a row that contradict found_
};

// Watches some threads. Each thread measures the time that it has lost itself.
class CoreContention {
 public:
  using Clock = std::chrono::steady_clock;

  explicit CoreContention(int threads = 1) : watched_(static_cast<std::size_t>(threads)) {}
  // True about 20 ms after the last conclude(). Then threads call look(), each with its own number;
  // afterwards one of the threads calls conclude(). A thread that doesn't call look() counts as
  // having lost nothing.
  bool due() const { return Clock::now() >= next_; }
  void look(int thread);
  void conclude();
  bool found() const { return rule_.found(); }

  // Does all of this for the calling thread alone.
  bool wanted();

 private:
  struct Watched {
    long id = 0;  // the system's thread id; another thread may take over this number
    std::chrono::nanoseconds before{0}, lost{0};
  };
  std::vector<Watched> watched_;
  Clock::time_point last_ = Clock::now(), next_ = last_;
  ContentionDetector rule_;
};

}  // namespace trident

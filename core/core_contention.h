// Whether others want the cores that threads of this process compute on: another program, or
// another run. A thread that waits for another one of its rank keeps its core, since it goes on
// sooner than one that sleeps; where the core is wanted it had better give it away, as it may be
// the awaited thread that wants it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace trident {

// For how long the calling thread could have run but had no core, since it began. Nothing where
// the system doesn't count that (/proc/thread-self/schedstat of Linux).
std::optional<std::chrono::nanoseconds> time_without_core();

// What follows from the time that was lost so. Cores are wanted after three stretches in a row of
// which a thread has lost a tenth, since others come and go in any system, until of ten in a row
// none has lost a fiftieth.
class ContentionRule {
 public:
  // `lost`: by the thread that has lost most in a stretch of this length.
  void add(std::chrono::nanoseconds stretch, std::chrono::nanoseconds lost);
  bool found() const { return found_; }

 private:
  bool found_ = false;
  int in_a_row_ = 0;  // stretches that speak for the other
};

// Watches some threads, which look at the time that they have lost themselves.
class CoreContention {
 public:
  using Clock = std::chrono::steady_clock;

  explicit CoreContention(int threads = 1) : watched_(static_cast<std::size_t>(threads)) {}
  // Some 20 ms after the last conclude(). Then threads call look(), each with its own number, and
  // once they have one of them conclude(). A thread that doesn't look counts as one that has lost
  // nothing.
  bool due() const { return Clock::now() >= next_; }
  void look(int thread);
  void conclude();
  bool found() const { return rule_.found(); }

  // All of this of the calling thread alone.
  bool wanted();

 private:
  struct Watched {
    long id = 0;  // of the system's; another thread may come in its place
    std::chrono::nanoseconds before{0}, lost{0};
  };
  std::vector<Watched> watched_;
  Clock::time_point last_ = Clock::now(), next_ = last_;
  ContentionRule rule_;
};

}  // namespace trident

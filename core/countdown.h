// A time-out that counts only while this process runs. A process that was stopped (SIGSTOP, Ctrl-Z)
// has not waited meanwhile, and answers of its peers may be ready when it resumes.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

namespace trident {

// One wait of one thread. The waiter calls over() at least as often as next_look() says. Each call
// counts the time since the last call, but no more than a few slices: in a longer gap the thread
// could not run. When the limit is reached, `excused` is called, if given; if it returns true, the
// limit starts again.
class Countdown {
 public:
  using Clock = std::chrono::steady_clock;

  Countdown() = default;  // without a limit
  explicit Countdown(Clock::duration limit, std::function<bool()> excused = nullptr);

  // The time until which a waiter may sleep before it calls over().
  Clock::time_point next_look() const;
  // Counts the time. Returns true once the limit is reached without an excuse.
  bool over();
  // Call it after progress: the limit starts again.
  void restart();

 private:
  Clock::duration slice_ = std::chrono::seconds(1);
  std::optional<Clock::duration> left_, limit_;
  Clock::time_point last_ = Clock::now();
  std::function<bool()> excused_;
};

}  // namespace trident

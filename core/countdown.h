// A limit on waiting that counts only while this process runs. A process that was stopped (SIGSTOP,
// Ctrl-Z) has not waited meanwhile, and its peers' answers may lie ready when it goes on.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

namespace trident {

// One wait of one thread. The waiter looks at least as often as next_look() says, and each look
// counts what passed since the last one, but no more than a few slices of it: a longer gap is one
// in which the thread could not look. `excused`, if given, is asked when the limit is reached;
// where it says so, the limit holds from there on.
class Countdown {
 public:
  using Clock = std::chrono::steady_clock;

  Countdown() = default;  // without a limit
  explicit Countdown(Clock::duration limit, std::function<bool()> excused = nullptr);

  // Until when a waiter may sleep before it looks again.
  Clock::time_point next_look() const;
  // Counts; true once the limit is reached without an excuse.
  bool over();
  // There was progress: the limit holds from here on.
  void restart();

 private:
  Clock::duration slice_ = std::chrono::seconds(1);
  std::optional<Clock::duration> left_, limit_;
  Clock::time_point last_ = Clock::now();
  std::function<bool()> excused_;
};

}  // namespace trident

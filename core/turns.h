// Two coroutines that overlap communication with compute: they share a thread, and where one would
// wait for other ranks, the other runs. Which one runs depends on their calls alone, never on time,
// so ranks that run the same two call their collectives in the same order.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace trident {

class Turns {
 public:
  Turns();
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Runs both on the calling thread and returns when both have ended. `first` begins; `second`
  // begins when `first` gives way, or after it. If one throws, the other's give_way() throws, too,
  // so that its stack is unwound, and the first exception propagates. Not reentrant.
  void run(const std::function<void()>& first, const std::function<void()>& second);
  // Lets the other one run until it gives way or ends. Returns at once outside run() and where the
  // other has ended.
  void give_way();
  // Whether give_way() would let another one run.
  bool shares() const;

 private:
  struct Pair;
  std::unique_ptr<Pair> pair_;  // during run()
  void* stack_ = nullptr;       // of `second`, made at the first need
};

}  // namespace trident

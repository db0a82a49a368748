// The signals that ask a run to stop and save.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>

namespace trident::app {

// Turns the first SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal goes) or SIGUSR1 (Slurm's warning)
// into a flag; one that comes a second later or more ends the process at once with exit code 130
// (mpirun and timeout send the same signal twice), but for SIGUSR1, which is no person's. So does
// the first one before begin(), when there is nothing to save. What is ignored at the start stays
// ignored: SIGHUP under nohup, SIGINT in what a script has put into the background.
//
// A thread takes the signals, so no handler and no global is needed. Make it before any other
// thread, which inherits that they are blocked.
class StopSignals {
 public:
  // `told` runs on that thread, with the name of the signal that was first.
  explicit StopSignals(std::function<void(const char* name, bool begun)> told);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // After begin() leaves the signals blocked: the run is over, and what comes now is late.
  ~StopSignals();
  // From here on there is something to save.
  void begin();
  // From here on all is saved: the next signal ends the process at once, with exit code 130.
  void finish() { finished_ = true; }
  const std::atomic<bool>& stop() const { return stop_; }

 private:
  void listen();
  void take();

  std::function<void(const char*, bool)> told_;
  std::atomic<bool> begun_ = false, finished_ = false, stop_ = false, done_ = false;
  std::thread thread_;
};

// From here on a write to a closed pipe fails, and ends nothing else.
void ignore_closed_pipes();

}  // namespace trident::app

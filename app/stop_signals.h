// Handles the signals that ask a run to save and stop.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>

namespace trident::app {

// Turns the first SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal closes) or SIGUSR1 (Slurm's
// warning) into a flag. Another signal ends the process at once with exit code 130 if it comes at
// least a second later, since mpirun and timeout send the same signal twice. SIGUSR1 never does so,
// since no person sends it. Before begin() there is nothing to save, so the first signal ends the
// process. A signal that is ignored at the start stays ignored: SIGHUP under nohup, SIGINT in a
// script's background job.
//
// A thread waits for the signals, so no handler and no global is needed. Make this object before
// any other thread, so that all threads inherit the blocked signals.
class StopSignals {
 public:
  // `on_signal` runs on that thread, with the name of the first signal.
  explicit StopSignals(std::function<void(const char* name, bool begun)> on_signal);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // After begin() leaves the signals blocked: the run is over, so later signals have no effect.
  ~StopSignals();
  // Call this when the run has something to save.
  void begin();
  // Call this when everything is saved: the next signal then ends the process with exit code 130.
  void finish() { finished_ = true; }
  const std::atomic<bool>& stop() const { return stop_; }

 private:
  void listen();
  void take();

  std::function<void(const char*, bool)> on_signal_;
  std::atomic<bool> begun_ = false, finished_ = false, stop_ = false, done_ = false;
  std::thread thread_;
};

// After this call a write to a closed pipe fails and doesn't end the process.
void ignore_closed_pipes();

}  // namespace trident::app

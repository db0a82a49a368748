#include "app/stop_signals.h"

#include <unistd.h>

#include <cstdint>
#include <utility>

#include "core/clock.h"

namespace trident::app {
namespace {

const char* name_of(int signal) {
  return signal == SIGINT    ? "SIGINT"
         : signal == SIGTERM ? "SIGTERM"
         : signal == SIGHUP  ? "SIGHUP"
                             : "SIGUSR1";
}

}  // namespace

StopSignals::StopSignals(std::function<void(const char*)> told) : told_(std::move(told)) {
  sigset_t set;
  sigemptyset(&set);
  // SIGUSR2 wakes the thread up at the end.
  for (const int s : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&set, s);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this, set] { take(set); });
}

void StopSignals::take(const sigset_t& set) {
  std::int64_t first = 0;
  for (int taken = 0;;) {
    sigwait(&set, &taken);
    if (taken == SIGUSR2 && done_) return;
    if (taken == SIGUSR2) continue;
    const std::int64_t now = read_clock().wall_ns;
    if (!stop_.exchange(true)) {
      first = now;
      if (told_) told_(name_of(taken));
    } else if (now - first > 1'000'000'000) {
      _exit(130);
    }
  }
}

void ignore_closed_pipes() {
  signal(SIGPIPE, SIG_IGN);
}

StopSignals::~StopSignals() {
  done_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
}

}  // namespace trident::app

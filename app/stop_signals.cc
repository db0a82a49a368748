#include "app/stop_signals.h"

#include <unistd.h>

#include <cstdint>
#include <system_error>
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

sigset_t stopping() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);  // the destructor wakes the thread with it
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction found {};
    sigaction(s, nullptr, &found);
    if (found.sa_handler != SIG_IGN) sigaddset(&set, s);
  }
  return set;
}

}  // namespace

StopSignals::StopSignals(std::function<void(const char*, bool)> on_signal)
    : on_signal_(std::move(on_signal)) {
  try {
    listen();
  } catch (const std::system_error&) {
    // The system has no thread left. A later check reports that better; until begin() the signals
    // have their default effect.
  }
}

void StopSignals::begin() {
  if (!thread_.joinable()) listen();
  begun_ = true;
}

void StopSignals::listen() {
  const sigset_t set = stopping();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  try {
    thread_ = std::thread([this] { take(); });
  } catch (...) {
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    throw;
  }
}

void StopSignals::take() {
  const sigset_t set = stopping();
  std::int64_t first = 0;
  for (int taken = 0;;) {
    sigwait(&set, &taken);
    if (taken == SIGUSR2 && done_) return;
    if (taken == SIGUSR2) continue;
    const std::int64_t now = read_clock().wall_ns;
    if (finished_ && !stop_) _exit(130);
    if (!stop_.exchange(true)) {
      first = now;
      const bool begun = begun_;
      if (on_signal_) on_signal_(name_of(taken), begun);
      if (!begun) _exit(130);
    } else if (taken != SIGUSR1 && now - first > 1'000'000'000) {
      _exit(130);
    }
  }
}

void ignore_closed_pipes() {
  signal(SIGPIPE, SIG_IGN);
}

StopSignals::~StopSignals() {
  if (!thread_.joinable()) return;
  done_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
  const sigset_t set = stopping();
  // A rank whose request was refused may still wait for the others, so signals must end it.
  if (!begun_) pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace trident::app

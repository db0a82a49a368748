#include "parallel/transport/mpi_library.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/process/process.h"
#include "core/countdown.h"

namespace trident {
namespace {

// The time that MPI_Abort may take. It asks the daemon of this host, which may be busy with a
// broken link.
constexpr std::chrono::seconds abort_patience{3};
// The time for which a BackOff does not sleep. A fragment of a message arrives sooner.
constexpr std::chrono::microseconds looking{300};

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(fmt::format("{}: {}", call, std::string(text, static_cast<std::size_t>(length))));
}

bool initialise_mpi() {
  int finalized = 0, initialized = 0, provided = MPI_THREAD_SINGLE;
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw Error("mpi: MPI is already finalised in this process; it can't be started again");
  }
  MPI_Initialized(&initialized);
  if (initialized != 0) {
    MPI_Query_thread(&provided);
  } else {
    // The MPI library's threads inherit the mask, so that signals reach the program's own threads.
    sigset_t stops, before;
    sigemptyset(&stops);
    for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&stops, s);
    pthread_sigmask(SIG_BLOCK, &stops, &before);
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    check_mpi(code, "MPI_Init_thread");
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    throw Error("mpi: this MPI library does not grant MPI_THREAD_MULTIPLE");
  }
  return initialized == 0;
}

Watchdog::Watchdog(std::chrono::milliseconds limit, std::string last_words, int exit_code)
    : thread_([this, limit, words = std::move(last_words), exit_code] {
        Countdown countdown(limit);
        std::unique_lock lock(mutex_);
        while (!stop_ && !countdown.over()) wake_.wait_until(lock, countdown.next_look());
        if (stop_) return;
        if (!words.empty()) print_error(words);
        ::_exit(exit_code);
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void abort_job(int exit_code) noexcept {
  try {
    std::thread([exit_code] {
      std::this_thread::sleep_for(abort_patience);
      ::_exit(exit_code);
    }).detach();
  } catch (const std::exception&) {
    ::_exit(exit_code);  // no thread can be started to watch the abort
  }
  std::fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  ::_exit(exit_code);
}

void BackOff::pause() {
  const auto waited = std::chrono::steady_clock::now() - begun_;
  if (!sleeps_ && waited < looking) {
    if (!keeps_core_) std::this_thread::yield();
    return;
  }
  sleeps_ = true;
  // Sleeps up to 1 ms, and at most an eighth of the time that was waited already.
  std::this_thread::sleep_for(std::clamp<std::chrono::steady_clock::duration>(
      waited / 8, std::chrono::microseconds(10), std::chrono::milliseconds(1)));
}

void BackOff::restart() {
  sleeps_ = false;
  begun_ = std::chrono::steady_clock::now();
}

}  // namespace trident

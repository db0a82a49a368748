// The MPI library in this process: its start, its end, and the end of the entire job.
#pragma once

// Leaves out the C++ bindings that MPI-3 removed.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace trident {

// Throws Error naming the MPI call unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

// The exit code of a job that failed while running.
inline constexpr int job_exit_code = 3;

// Initialises MPI. True where this call has initialised it, false where the program had before.
// Throws Error where MPI is finalised already, or does not grant MPI_THREAD_MULTIPLE.
bool initialise_mpi();

// Ends this process where blocking MPI calls don't return. A peer that is stopped or out of reach
// can block them for ever, and nothing else in the process can end them. Time in which the process
// itself was stopped doesn't count.
class Watchdog {
 public:
  // After `limit`, unless destroyed before, prints `last_words` on stderr (nothing where empty) and
  // calls _exit.
  Watchdog(std::chrono::milliseconds limit, std::string last_words, int exit_code);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

// Ends all processes of the job that MPI and mpirun can reach, and this process in any case.
[[noreturn]] void abort_job(int exit_code) noexcept;

// The pauses between polls of something that moves only while it is polled, as MPI's messages do.
// pause() returns at once for some hundred microseconds, then sleeps a little longer each time.
// Call restart() after each progress: a message in flight is then polled all the time, and a
// message whose peer is late costs nothing.
class BackOff {
 public:
  // `keeps_core`: no other thread needs the core meanwhile.
  explicit BackOff(bool keeps_core = false) : keeps_core_(keeps_core) {}
  void pause();
  void restart();

 private:
  bool keeps_core_;
  bool sleeps_ = false;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

}  // namespace trident

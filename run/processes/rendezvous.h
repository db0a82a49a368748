// The rendezvous of a job at its start. Under mpirun or srun each process loads and checks its
// request by itself. All processes then compare the results before one of them writes or sends
// anything. The error of the lowest rank that failed is shown once, with its rank and host, and all
// processes end with its exit code. A job of one process has no rendezvous.
//
// Each process makes one object. Every wait has a limit; a process that does not arrive is named,
// and the job ends with exit code 3 (parallel/transport/mpi_job.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/transport/mpi_job.h"
#include "run/processes/agreement.h"

namespace trident {

// Thrown in all processes, which end with `code`. The reason has been printed.
struct RendezvousRefused : std::exception {
  explicit RendezvousRefused(int c) : code(c) {}
  const char* what() const noexcept override { return "the job was refused at its start"; }
  int code;
};

class Rendezvous {
 public:
  // The message of one process to the rendezvous.
  struct Report {
    std::int64_t code = 0;  // not 0: the process has failed
    std::string text = {}, mode = {};
    std::int64_t value = 0;
    std::string given = {};
    std::vector<Fingerprint> fingerprints = {};

    std::string bytes() const;
  };

  // `rank` and `ranks`: of this process in the job, from the launcher.
  Rendezvous(bool mpi, int rank, int ranks)
      : alone_(!mpi || ranks < 2), rank_(rank), ranks_(ranks) {}

  // Makes this process take part, for `mode` ("train", "plan"), which must be the same on all
  // ranks. From here on the process passes errors to fail(). Throws RequestError if MPI can't be
  // loaded.
  void join(const std::string& mode);
  // Sets the limit of each wait for other processes.
  void limit(std::chrono::milliseconds limit) { limit_ = limit; }

  // Waits until all processes have called agree(), and returns the least of their values. Throws
  // RendezvousRefused if one of them has failed, or if modes or fingerprints of the same name
  // differ (exit code 2). Collective over the job's processes, as is exchange().
  std::int64_t agree(const std::vector<Fingerprint>& fingerprints, std::int64_t value = 0);
  // Sends `own` to rank 0, which calls `answer` with the texts of all ranks, ordered by rank.
  // Returns that answer on every rank. The work between two exchanges may take `longer` than the
  // limit.
  using GiveAnswer = std::function<std::string(const std::vector<std::string>&)>;
  std::string exchange(const std::string& own, const GiveAnswer& answer,
                       std::chrono::milliseconds longer);
  // The hosts' names, by rank. Call it after agree().
  std::vector<std::string> hosts() const;
  // Ends the start: from here on fail() ends the job at once.
  void done() { started_ = true; }

  // Reports an error of this process to all others and shows it. Returns the exit code.
  int fail(int code, const std::string& text) noexcept;
  // Ends MPI. Call it last.
  void finish(int code);

 private:
  struct Reply {
    std::int64_t least = 0;
    std::string given;
  };
  Reply meet(const Report& own, const GiveAnswer& give, std::chrono::milliseconds longer,
             const std::string& why = "to check their requests");
  bool takes_part() const { return !alone_ && !mode_.empty(); }

  bool alone_;
  int rank_, ranks_;
  std::string mode_;
  std::chrono::milliseconds limit_{600'000};
  bool started_ = false;
  std::unique_ptr<MpiJob> job_;  // null before join() and alone
};

}  // namespace trident

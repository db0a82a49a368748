// The rendezvous of a job: under mpirun or srun each process loads and checks its request by
// itself, and all compare what came of it before anything is written or sent. The first error of
// any rank is shown once, with its rank and host, and all processes end with its exit code. In a
// job of one process nothing of this happens.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/transport/mpi_job.h"
#include "run/launch/agreement.h"

namespace trident {

// All processes end with this code, and why has been said.
struct RendezvousRefused : std::exception {
  explicit RendezvousRefused(int c) : code(c) {}
  const char* what() const noexcept override { return "the job was refused at its start"; }
  int code;
};

class Rendezvous {
 public:
  // What one process says where all meet.
  struct Report {
    std::int64_t code = 0;  // not 0: it has failed
    std::string text = {}, mode = {};
    std::int64_t value = 0;
    std::string given = {};
    std::vector<Fingerprint> fingerprints = {};

    std::string bytes() const;
  };

  // Of this process in the job, as the launcher says.
  Rendezvous(bool mpi, int rank, int ranks)
      : alone_(!mpi || ranks < 2), rank_(rank), ranks_(ranks) {}

  // This process takes part, for `mode` ("train", "plan"): all must have come for the same. From
  // here on an error goes to fail(). Throws RequestError where MPI isn't there.
  void join(const std::string& mode);
  // What a wait for others may take, once it is known.
  void limit(std::chrono::milliseconds limit) { limit_ = limit; }

  // Waits for all processes to come here. Throws RendezvousRefused where one of them has failed,
  // was asked for something else, or has another fingerprint of the same name (exit code 2).
  // Returns the least of all ranks' values. Collective.
  std::int64_t agree(const std::vector<Fingerprint>& fingerprints, std::int64_t value = 0);
  // Gives `own` to rank 0, whose `answer` to what all have given, by rank, is everybody's. What is
  // done between two exchanges may take `longer` than the limit. Collective.
  using GiveAnswer = std::function<std::string(const std::vector<std::string>&)>;
  std::string exchange(const std::string& own, const GiveAnswer& answer,
                       std::chrono::milliseconds longer);
  // By rank; after agree().
  std::vector<std::string> hosts() const;
  // The start is over: an error from here on ends the job at once.
  void done() { started_ = true; }

  // An error of this process. Gives the exit code; it has been shown.
  int fail(int code, const std::string& text) noexcept;
  // The end of the process.
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

// What a transport gives to process groups: the world group of one rank, and an end for all ranks
// when one of them fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "parallel/nodes.h"
#include "parallel/process_group.h"

namespace trident {

struct TransportOptions {
  bool deterministic = true;                   // reductions add in group-rank order
  std::chrono::milliseconds timeout{600'000};  // a peer later than this is an error; > 0
  Algorithm algorithm = Algorithm::automatic;  // all_reduce's default
  int ranks_per_node = 0;                      // 0: nodes are hosts
  bool nccl = false;                           // tensors of GPUs go by NCCL, one rank a GPU
  int threads_per_rank = 1;                    // a waiting rank sleeps at once if cores are few
  // For tests: a point-to-point message arrives this much later than it was sent, for as many
  // messages at once as there are; the sender does not wait for it. Collectives are not delayed.
  std::chrono::microseconds injected_latency{0};
};

// One rank's seat in the world.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual ProcessGroup world() const = 0;
  virtual Nodes nodes() const = 0;
  // Ends all ranks: every operation of every rank that is not complete throws AbortedError naming
  // `reason`, and so do all that follow (mpi: prints it and ends the job). The first call wins.
  virtual void abort(const std::string& reason) noexcept = 0;
};

// Runs `body` on `ranks` threads of this process, one rank each, and returns when all have ended.
// If ranks throw, the others are aborted and the first error is rethrown as it was thrown. A rank
// that waits for one whose body has returned gets a CommunicationError. Throws RequestError for a
// bad argument. (transport/local.cc)
void run_local(int ranks, const TransportOptions& options,
               const std::function<void(Transport&)>& body);

// This process's seat in a world started by mpirun or srun (alone, it is a world of one). MPI is
// initialised by the first call and finalised when the object goes. An error found here, or
// abort(), prints one line to stderr and ends the job with exit code 3. (transport/mpi.cc)
std::unique_ptr<Transport> make_mpi_transport(const TransportOptions& options);

// What the processes of an MPI job agree on before they have a transport. least() initialises MPI,
// finish() ends it; without finish(), after an error, the job ends with the process.
class MpiJob {
 public:
  std::int64_t least(std::int64_t value);  // of all processes' values; collective
  void finish();

 private:
  bool begun_ = false;
};

// Aborts the world when an exception leaves its scope. Declare it after a Context with an
// asynchronous stream: destroying that context finishes the stream's work, which could wait for
// peers that don't know yet. The exception itself stays the first error.
class AbortOnUnwind {
 public:
  explicit AbortOnUnwind(Transport& transport) : transport_(transport) {}
  ~AbortOnUnwind();
  AbortOnUnwind(const AbortOnUnwind&) = delete;
  AbortOnUnwind& operator=(const AbortOnUnwind&) = delete;

 private:
  Transport& transport_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace trident

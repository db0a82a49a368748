// What a transport gives to process groups: the world group of one rank, and an end for all ranks
// when one of them fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/nodes.h"
#include "parallel/process_group.h"

namespace trident {

struct Collective;
struct CommunicatorLibraryKind;

struct TransportOptions {
  bool deterministic = true;                   // reductions add in group-rank order
  std::chrono::milliseconds timeout{600'000};  // a peer later than this is an error; > 0
  Algorithm algorithm = Algorithm::automatic;  // all_reduce's default
  int ranks_per_node = 0;                      // 0: nodes are hosts
  int threads_per_rank = 1;                    // a waiting rank sleeps at once if cores are few
  // Processes of a host copy large tensors from each other's memory where the system lets them.
  bool single_copy = true;
  // For tests: a point-to-point message arrives this much later than it was sent, for as many
  // messages at once as there are; the sender does not wait for it. Collectives are not delayed.
  std::chrono::microseconds injected_latency{0};
  // Collectives of the program's own (collectives/collective.h), asked before the built-in ones;
  // the same on all ranks.
  std::shared_ptr<const std::vector<Collective>> more_collectives;
  // Carries tensors of GPUs, one rank a GPU (collectives/communicator.h); null: the transport does.
  const CommunicatorLibraryKind* library = nullptr;
};

// An exception's text, for people; exit code: 2 for a RequestError, else 3.
std::string message_of(const std::exception_ptr& error) noexcept;
int exit_code_of(const std::exception_ptr& error) noexcept;

// One rank's seat in the world.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual ProcessGroup world() const = 0;
  virtual Nodes nodes() const = 0;
  // Ends all ranks: every operation of every rank that is not complete throws AbortedError naming
  // `reason`, and so do all that follow (mpi: prints it and ends the job). The first call wins.
  virtual void abort(const std::string& reason) noexcept = 0;
  // The same for an error that this rank's body is about to throw (mpi: the exit code is 2 for a
  // RequestError). Call it before what the body has made unwinds: a Context finishes its stream's
  // work, which could wait for peers that don't know yet.
  virtual void fail(std::exception_ptr error) noexcept = 0;
};

// Runs `body` and ends all ranks with what it throws, which goes on as it is.
template <class Body>
auto end_all_on_error(Transport& transport, Body&& body) {
  try {
    return body();
  } catch (...) {
    transport.fail(std::current_exception());
    throw;
  }
}

// Runs `body` on `ranks` threads of this process, one rank each, and returns when all have ended.
// If ranks throw, the others are aborted and the first error is rethrown as it was thrown. A rank
// that waits for one whose body has returned gets a CommunicationError. Throws RequestError for a
// bad argument. (transport/local.cc)
void run_local(int ranks, const TransportOptions& options,
               const std::function<void(Transport&)>& body);

// This process's seat in a world started by mpirun or srun (alone, it is a world of one). MPI is
// initialised by the first call and finalised when the object goes, unless the program has
// initialised it. What goes wrong here, abort() and fail() print one line with the rank and its
// host on stderr and end the job, with exit code 3, or 2 for a RequestError. Throws one where MPI
// isn't there (mpi_parts.h). (transport/mpi.cc)
std::unique_ptr<Transport> make_mpi_transport(const TransportOptions& options);
// Runs `body` on it; what it throws ends the job.
void run_mpi(const TransportOptions& options, const std::function<void(Transport&)>& body);

}  // namespace trident

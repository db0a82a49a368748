// A transport gives process groups the world group of one rank, and ends all ranks when one of them
// fails.
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
  // Processes of a host copy large tensors from each other's memory where the system allows it.
  bool single_copy = true;
  // For tests: a point-to-point message arrives this much later than it was sent. Any number of
  // messages may be delayed at once, and the sender does not wait. Collectives are not delayed.
  std::chrono::microseconds injected_latency{0};
  // The program's own collectives (parallel/collectives/collective.h), tried before the built-in
  // ones. They must be the same on all ranks.
  std::shared_ptr<const std::vector<Collective>> more_collectives;
  // Carries tensors of GPUs, one rank a GPU (parallel/collectives/communicator.h); null: the
  // transport carries them.
  const CommunicatorLibraryKind* library = nullptr;
};

// An exception's text, for people, and its exit code: 2 for a RequestError, else 3.
std::string message_of(const std::exception_ptr& error) noexcept;
int exit_code_of(const std::exception_ptr& error) noexcept;

// One rank's access to its world.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual ProcessGroup world() const = 0;
  virtual Nodes nodes() const = 0;
  // Ends all ranks: every operation of every rank that is not complete, and every later one, throws
  // AbortedError that names `reason` (mpi: prints it and ends the job). The first call wins.
  virtual void abort(const std::string& reason) noexcept = 0;
  // The same for an error that this rank's body is about to throw (mpi: the exit code is 2 for a
  // RequestError). Call it before the body's objects unwind: a Context finishes its stream's work,
  // which could wait for peers that don't know of the error yet.
  virtual void fail(std::exception_ptr error) noexcept = 0;
};

// Runs `body`. If it throws, ends all ranks with the exception and rethrows it unchanged.
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
// If ranks throw, the others are aborted and the first error is rethrown unchanged. A rank that
// waits for a rank whose body has returned gets a CommunicationError. Throws RequestError for a bad
// argument. (parallel/transport/local.cc)
void run_local(int ranks, const TransportOptions& options,
               const std::function<void(Transport&)>& body);

// This process as a rank of a world that mpirun or srun has started (alone, it is a world of one).
// The first call initialises MPI and the object's destructor finalises it, unless the program has
// initialised it. An error here, abort() and fail() print one line with the rank and its host on
// stderr and end the job, with exit code 3, or 2 for a RequestError. Throws RequestError where MPI
// can't be loaded (parallel/transport/mpi_parts.h). (parallel/transport/mpi.cc)
std::unique_ptr<Transport> make_mpi_transport(const TransportOptions& options);
// Runs `body` on that transport; an exception from it ends the job.
void run_mpi(const TransportOptions& options, const std::function<void(Transport&)>& body);

}  // namespace trident

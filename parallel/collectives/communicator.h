// The interface of a library, such as NCCL, that carries tensors of GPUs between the members of a
// group. Each member is in its own process or thread, and the tensors move in the order of the
// members' queues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "kernels/reduce_op.h"

namespace trident {

class Endpoint;

// The traffic of a communicator. `messages`: between two members, concurrently with other
// communicators.
enum class Carries { collectives, messages };

// One member's end of a communicator. One thread at a time may use it. Counts are elements. Work
// goes into the access's queue, and an address must stay valid until the work has run. Throws
// CommunicationError where the library fails, and AbortedError where all ranks have been ended.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // Makes another communicator of the members with the same color, ranked by key; null for a
  // negative color. Collective. No operation of this communicator may be in flight.
  virtual std::shared_ptr<Communicator> split(int color, int key, const std::string& name) = 0;

  // The library chooses the order of additions, the same in each run.
  virtual void all_reduce(const Access&, void* data, std::int64_t n, DType, ReduceOp) = 0;
  virtual void reduce_scatter(const Access&, const void* input, void* output, std::int64_t n, DType,
                              ReduceOp) = 0;
  virtual void all_gather(const Access&, const void* input, void* output, std::size_t bytes) = 0;
  virtual void broadcast(const Access&, void* data, std::size_t bytes, int root) = 0;

  // Messages that travel together, in one group of calls, between any members.
  struct Part {
    int peer = 0;  // group rank
    void* data = nullptr;
    std::size_t bytes = 0;
  };
  virtual void exchange(const Access&, std::span<const Part> sends,
                        std::span<const Part> receives) = 0;
};

// The source of communicators on one rank. A group has one where its world was made with a library
// (make_world_group).
class CommunicatorLibrary {
 public:
  virtual ~CommunicatorLibrary() = default;
  // One member makes a key, and all members open the communicator with it.
  virtual std::size_t key_bytes() const = 0;
  virtual std::vector<std::byte> make_key() = 0;
  virtual std::shared_ptr<Communicator> open(const std::vector<std::byte>& key,
                                             const std::string& name, int ranks, int rank, Device&,
                                             Carries) = 0;
  // Whether communicators can reduce by this operation. Where they can't, members exchange parts
  // and add them in staging memory.
  virtual bool reduces(ReduceOp) const = 0;
};

// A library that a row of the transport registry names (TransportKind::library).
struct CommunicatorLibraryKind {
  // Makes the library on one rank. Errors, the end of all ranks and all messages of the hosts go
  // through `host`.
  std::shared_ptr<CommunicatorLibrary> (*make)(std::shared_ptr<Endpoint> host) = nullptr;
  // Whether its communicators will reduce by an operation, for plans, which make no communicator.
  bool (*reduces)(ReduceOp, bool deterministic) = nullptr;
};

}  // namespace trident

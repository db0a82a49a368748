// A library that carries tensors of GPUs between the members of a group, each in its own process or
// thread, in the order of their queues.
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

// Messages: between two, beside other communicators.
enum class Carries { collectives, messages };

// One member's end. One thread at a time. Counts are elements; work goes into the access's queue,
// and an address must stay until it has run. Throws CommunicationError where the library fails, and
// AbortedError where all ranks have been ended.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // Another of the members with the same color, ranked by key; null for a negative color.
  // Collective; nothing may be under way here.
  virtual std::shared_ptr<Communicator> split(int color, int key, const std::string& name) = 0;

  // The order of additions is the library's, the same in each run.
  virtual void all_reduce(const Access&, void* data, std::int64_t n, DType, ReduceOp) = 0;
  virtual void reduce_scatter(const Access&, const void* input, void* output, std::int64_t n, DType,
                              ReduceOp) = 0;
  virtual void all_gather(const Access&, const void* input, void* output, std::size_t bytes) = 0;
  virtual void broadcast(const Access&, void* data, std::size_t bytes, int root) = 0;

  // Messages that travel together: all of a group of calls, between any members.
  struct Part {
    int peer = 0;  // group rank
    void* data = nullptr;
    std::size_t bytes = 0;
  };
  virtual void exchange(const Access&, std::span<const Part> sends,
                        std::span<const Part> receives) = 0;
};

// Where communicators come from, on one rank. A group has one where its world was made with a
// library (make_world_group).
class CommunicatorLibrary {
 public:
  virtual ~CommunicatorLibrary() = default;
  // One member makes a key, all open the communicator with that.
  virtual std::size_t key_bytes() const = 0;
  virtual std::vector<std::byte> make_key() = 0;
  virtual std::shared_ptr<Communicator> open(const std::vector<std::byte>& key,
                                             const std::string& name, int ranks, int rank, Device&,
                                             Carries) = 0;
  // Whether communicators reduce by this operation; if not, members exchange parts, and add them up
  // in staging.
  virtual bool reduces(ReduceOp) const = 0;
};

// A library that a transport's row names (TransportKind::library).
struct CommunicatorLibraryKind {
  // On one rank. Errors and ends go by `host`, and all messages of the hosts.
  std::shared_ptr<CommunicatorLibrary> (*make)(std::shared_ptr<Endpoint> host) = nullptr;
  // What its communicators will reduce, for plans, which make none.
  bool (*reduces)(ReduceOp, bool deterministic) = nullptr;
};

}  // namespace trident

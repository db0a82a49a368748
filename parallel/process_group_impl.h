// The implementation behind ProcessGroup and Work, for transports. Functions marked "in stream
// work" are called by the thread that carries out the stream's work.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "parallel/collectives/exchange.h"
#include "parallel/collectives/progress_thread.h"
#include "parallel/process_group.h"

namespace trident {

struct Work::Impl {
  virtual ~Impl() = default;
  virtual void wait(const Access&) = 0;  // in stream work; rethrows the operation's error
  virtual bool done() const = 0;         // does not block

  // On a planning device, the trace that has the operation, and its index there.
  const OperationTrace* trace = nullptr;
  std::size_t traced = 0;
};

struct ProcessGroup::Impl {
  Membership membership;
  std::atomic<std::int64_t> operations{0};

  // The numbers of the next operation, split and subgroup, and of the next message to and from each
  // member by channel. Only the thread that issues the group's operations touches them.
  std::uint64_t next_operation = 0;
  std::uint64_t next_split = 0;
  std::map<std::uint64_t, std::uint64_t> subgroups;
  using LinkCounters = std::vector<std::array<std::uint64_t, message_channels>>;
  LinkCounters next_sent, next_received;

  // Runs a collective after the asynchronous ones that still run. In stream work.
  void run_in_order(std::function<void()> operation);
  // The progress thread; the first call starts it. In stream work.
  ProgressThread& progress();
  // Prepares collectives on GPU tensors. The first call makes the group's events, and a
  // communicator where one is wanted; opening a communicator takes all members at once.
  void prepare(Device& device, bool wants_communicator);
  // Messages that a library carries. The messages from one member to another on one channel have a
  // communicator, a queue and a thread of their own, so that none waits for a message of another
  // link.
  struct Link {
    bool opened = false;  // a message that opens the communicator has been issued
    std::shared_ptr<Communicator>
        communicator;  // of two members; the thread makes it with its first message
    std::unique_ptr<Stream> stream;
    std::unique_ptr<ProgressThread> thread;  // last: it ends before the objects that it uses
  };
  Link& link(Device& device, int peer, int channel, bool receives);
  // The queue of this group's asynchronous collectives.
  Stream& side_stream(Device& device);
  // The end of the last collective in that queue.
  std::shared_ptr<DeviceEvent> side_finished;

 private:
  std::map<std::tuple<int, int, int>, Link> links_;  // by sender, receiver, channel
  std::unique_ptr<Stream> side_stream_;
  std::unique_ptr<ProgressThread> progress_;  // last: it ends before the objects that it uses
};

// The way in which operations on tensors of this context reach memory, in the stream work that
// `access` was handed to.
Reach reach_of(Context& context, const Access& access);

// The group of all ranks of an endpoint. `library` carries the tensors on GPUs; where it is null,
// the endpoint carries them. Without the argument it is the library that the endpoint's options
// name.
ProcessGroup make_world_group(std::shared_ptr<Endpoint> endpoint);
ProcessGroup make_world_group(std::shared_ptr<Endpoint> endpoint,
                              std::shared_ptr<CommunicatorLibrary> library);

// Throws a RequestError that names the wrong option.
void check_options(const TransportOptions& options);

}  // namespace trident

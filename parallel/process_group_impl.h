// What stands behind ProcessGroup, for transports.
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
};

struct ProcessGroup::Impl {
  Membership membership;
  std::atomic<std::int64_t> operations{0};

  // Numbers of the next operation, split and subgroup, and of the next message to and from each
  // member by channel. Touched only by the thread that issues the group's operations.
  std::uint64_t next_operation = 0;
  std::uint64_t next_split = 0;
  std::map<std::uint64_t, std::uint64_t> subgroups;
  using LinkCounters = std::vector<std::array<std::uint64_t, message_channels>>;
  LinkCounters next_sent, next_received;

  // Runs a collective after those that still run asynchronously. In stream work.
  void run_in_order(std::function<void()> operation);
  // Starts the thread at the first call. In stream work.
  ProgressThread& progress();
  // Of tensors on a GPU: what its collectives need, made at the first call;
  // a communicator where one is wanted (opening it takes all members at once).
  void prepare(Device& device, bool wants_communicator);
  // Messages by a library: those from one member to another on one channel have a communicator, a
  // queue and a thread of their own, so that none waits for another's.
  struct Link {
    bool opened = false;  // a message that opens the communicator has been issued
    std::shared_ptr<Communicator>
        communicator;  // of two; made by the thread, with its first message
    std::unique_ptr<Stream> stream;
    std::unique_ptr<ProgressThread> thread;  // last: ends before what it uses
  };
  Link& link(Device& device, int peer, int channel, bool receives);
  // The queue that asynchronous collectives have for themselves.
  Stream& side_stream(Device& device);
  // The end of the last collective there.
  std::shared_ptr<DeviceEvent> side_finished;

 private:
  std::map<std::tuple<int, int, int>, Link> links_;  // by sender, receiver, channel
  std::unique_ptr<Stream> side_stream_;
  std::unique_ptr<ProgressThread> progress_;  // last: ends before what it uses
};

// How operations on tensors of this context reach memory, in the work that `access` was handed to.
Reach reach_of(Context& context, const Access& access);

// The group of all ranks of an endpoint. `library`: of tensors on GPUs, which else (null) the
// endpoint carries; by default what the endpoint's options name.
ProcessGroup make_world_group(std::shared_ptr<Endpoint> endpoint);
ProcessGroup make_world_group(std::shared_ptr<Endpoint> endpoint,
                              std::shared_ptr<CommunicatorLibrary> library);

// Throws RequestError naming the option.
void check_options(const TransportOptions& options);

}  // namespace trident

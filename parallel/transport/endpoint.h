// The byte-level service that a transport gives to the collectives: messages between world ranks
// with a limit on waiting and an abort flag. A transport of another kind implements this.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "core/countdown.h"
#include "core/device.h"
#include "parallel/collectives/descriptor.h"
#include "parallel/transport/file_work.h"
#include "parallel/transport/shared_rendezvous.h"
#include "parallel/transport/transport.h"

namespace trident {

// Of a message's buffer in a GPU's memory: what its queues have to know. A message is then complete
// when its copy has been put into the receiver's queue.
struct QueueSide {
  std::shared_ptr<DeviceEvent> ready;  // the buffer may be read, or written
  std::shared_ptr<DeviceEvent> moved;  // the copy's end: the receiver's; once complete the sender's
  // Of the receiver: where the copy goes, and how it is made.
  Stream* queue = nullptr;
  void (*copy)(const Access&, void* to, const void* from, std::size_t bytes) = nullptr;
};

// One posted message. Any one thread at a time. The destructor returns when the buffer is no longer
// in use; a send that nobody has received yet still arrives.
class Request {
 public:
  virtual ~Request() = default;
  // Whether wait would return at once; never blocks.
  virtual bool test() = 0;
  // Throws AbortedError when the world is aborted before the message is complete.
  virtual Outcome wait(Countdown& countdown) = 0;
  // Receives, once complete (or mismatch).
  virtual const Descriptor& peer_descriptor() const = 0;
  // post_receive_view, once complete: the message, valid until the request goes.
  virtual const std::byte* view() const = 0;
};

// Messages are matched in order per (sender, receiver, descriptor.group, channel). Any thread.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Nodes nodes() const = 0;
  virtual const TransportOptions& options() const = 0;

  // False where nobody else is there (planning.h).
  virtual bool exchanges() const { return true; }

  // Tells of a group before its first message; throws Error where it can't be told from another.
  virtual void open_group(std::uint64_t, const std::string&) {}
  // This rank's seat among the members (world ranks by group rank), null where they share no
  // memory.
  virtual std::unique_ptr<SharedRendezvous> open_rendezvous(std::uint64_t,
                                                            const std::vector<int>&) {
    return nullptr;
  }

  // Whether members that share a node may have one, though others don't.
  virtual bool shares_memory() const { return false; }

  // All-reduces of the transport's own, in an order of additions of its own, for tensors in a
  // host's memory. Whether it has such a one, opening them for a group (all members at once), and
  // one, in place; `average` adds only. `peer`: the member that this one is said to wait for.
  virtual bool reduces(DType, ReduceOp) const { return false; }
  virtual void open_reductions(std::uint64_t /*group*/, const std::vector<int>& /*members*/) {}
  virtual std::unique_ptr<Request> post_all_reduce(std::uint64_t /*group*/, int /*peer*/,
                                                   void* /*data*/, std::int64_t /*n*/, DType,
                                                   ReduceOp) {
    return nullptr;
  }

  // `bytes` at `data` stay unchanged until the request is complete or gone.
  virtual std::unique_ptr<Request> post_send(int peer, int channel, const Descriptor& descriptor,
                                             const void* data, std::size_t bytes,
                                             std::shared_ptr<QueueSide> side = nullptr) = 0;
  virtual std::unique_ptr<Request> post_receive(int peer, int channel, const Descriptor& expected,
                                                void* data, std::size_t bytes,
                                                std::shared_ptr<QueueSide> side = nullptr) = 0;
  // Like post_receive, but the message may stay where the sender has it; the sender's request
  // completes when this one goes. `staging` is used (and may be null otherwise) if needs_staging().
  virtual std::unique_ptr<Request> post_receive_view(int peer, int channel,
                                                     const Descriptor& expected, void* staging,
                                                     std::size_t bytes) = 0;
  virtual bool needs_staging() const = 0;
  // Whether buffers on GPUs may be used, with a QueueSide.
  virtual bool reaches_gpus() const { return false; }

  // Of this rank; null where nobody waits for it.
  virtual FileTimes* file_times() { return nullptr; }
  // Whether a rank works on files, or has until lately. Under MPI asks them all.
  virtual bool files_hold_up() { return false; }
  // The limit of a wait that begins now, to which work on files doesn't count.
  Countdown countdown(std::chrono::milliseconds longer = {}) {
    return Countdown(options().timeout + longer, [this] { return files_hold_up(); });
  }

  // For errors of waits: "; rank 1 waits for rank 2, which waits for rank 3", as far as is known.
  virtual std::string waits_of(int /*rank*/) { return ""; }

  // Throws AbortedError if the world is aborted.
  virtual void check() const = 0;
  // Ends all ranks because of an error of this one. The first call wins.
  virtual void fail(std::exception_ptr error) noexcept = 0;
  virtual void abort(const std::string& reason) noexcept = 0;
};

// Channels of a group's messages.
inline constexpr int collective_channel = 0;
inline constexpr int first_message_channel = 1;
inline constexpr int message_channels = 8;
inline constexpr int control_channel = first_message_channel + message_channels;
// From a message's receiver back to its sender, by the message's channel: it has come to it.
inline constexpr int first_answer_channel = control_channel + 1;
inline constexpr int channel_count = first_answer_channel + message_channels;

}  // namespace trident

// The byte-level service that a transport gives to the collectives: messages between world ranks
// with a limit on waiting and an abort flag. A transport of another kind implements Endpoint.
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

// The events and the queue of a message whose buffer is in a GPU's memory. The message is complete
// when its copy has been put into the receiver's queue.
struct QueueSide {
  std::shared_ptr<DeviceEvent> ready;  // the buffer may be read, or written
  std::shared_ptr<DeviceEvent> moved;  // the copy's end; the sender's, too, once complete
  // For the receiver: the queue of the copy, and the function that makes it.
  Stream* queue = nullptr;
  void (*copy)(const Access&, void* to, const void* from, std::size_t bytes) = nullptr;
};

// One posted message. One thread at a time may use it. The destructor returns when the buffer is no
// longer in use. A send that has not been received yet still arrives.
class Request {
 public:
  virtual ~Request() = default;
  // Whether wait() would return at once; never blocks.
  virtual bool test() = 0;
  // Throws AbortedError when the world is aborted before the message is complete.
  virtual Outcome wait(Countdown& countdown) = 0;
  // The sender's descriptor, of a receive that is complete (or a mismatch).
  virtual const Descriptor& peer_descriptor() const = 0;
  // The message of a post_receive_view that is complete; valid until the request is destroyed.
  virtual const std::byte* view() const = 0;
};

// Messages are matched in order per (sender, receiver, descriptor.group, channel). Any thread may
// call.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Nodes nodes() const = 0;
  virtual const TransportOptions& options() const = 0;

  // False where the other ranks do not exist (parallel/transport/planning.h).
  virtual bool exchanges() const { return true; }

  // Announces a group before its first message. Throws Error where it can't be distinguished from
  // another group.
  virtual void open_group(std::uint64_t, const std::string&) {}
  // This rank's side of the rendezvous of the members (world ranks by group rank); null where they
  // share no memory.
  virtual std::unique_ptr<SharedRendezvous> open_rendezvous(std::uint64_t,
                                                            const std::vector<int>&) {
    return nullptr;
  }

  // Whether members that share a node may have a rendezvous, though other members don't.
  virtual bool shares_memory() const { return false; }

  // All-reduces of the transport's own, in its own order of additions, for tensors in a host's
  // memory. reduces() says whether it has one for the type and the operation. open_reductions()
  // opens them for a group; all members call it at once. post_all_reduce() starts one, in place;
  // `average` adds only. `peer` is the member that this one is reported to wait for.
  virtual bool reduces(DType, ReduceOp) const { return false; }
  virtual void open_reductions(std::uint64_t /*group*/, const std::vector<int>& /*members*/) {}
  virtual std::unique_ptr<Request> post_all_reduce(std::uint64_t /*group*/, int /*peer*/,
                                                   void* /*data*/, std::int64_t /*n*/, DType,
                                                   ReduceOp) {
    return nullptr;
  }

  // `bytes` at `data` must stay unchanged until the request is complete or destroyed.
  virtual std::unique_ptr<Request> post_send(int peer, int channel, const Descriptor& descriptor,
                                             const void* data, std::size_t bytes,
                                             std::shared_ptr<QueueSide> side = nullptr) = 0;
  virtual std::unique_ptr<Request> post_receive(int peer, int channel, const Descriptor& expected,
                                                void* data, std::size_t bytes,
                                                std::shared_ptr<QueueSide> side = nullptr) = 0;
  // Like post_receive, but the message may stay in the sender's memory. The sender's request
  // completes when this one is destroyed. `staging` is used if needs_staging(), and may be null
  // otherwise.
  virtual std::unique_ptr<Request> post_receive_view(int peer, int channel,
                                                     const Descriptor& expected, void* staging,
                                                     std::size_t bytes) = 0;
  virtual bool needs_staging() const = 0;
  // Whether buffers may lie on GPUs, with a QueueSide.
  virtual bool reaches_gpus() const { return false; }

  // The file times of this rank; null where no rank waits for it.
  virtual FileTimes* file_times() { return nullptr; }
  // Whether any rank works on files, or did until recently. Under MPI this asks all ranks.
  virtual bool files_hold_up() { return false; }
  // The limit of a wait that begins now. Work on files does not count toward it.
  Countdown countdown(std::chrono::milliseconds longer = {}) {
    return Countdown(options().timeout + longer, [this] { return files_hold_up(); });
  }

  // For errors of waits: "; rank 1 waits for rank 2, which waits for rank 3", as far as this is
  // known.
  virtual std::string waits_of(int /*rank*/) { return ""; }

  // Throws AbortedError if the world is aborted.
  virtual void check() const = 0;
  // Ends all ranks because of an error of this rank. The first call wins.
  virtual void fail(std::exception_ptr error) noexcept = 0;
  virtual void abort(const std::string& reason) noexcept = 0;
};

// The channels of a group's messages.
inline constexpr int collective_channel = 0;
inline constexpr int first_message_channel = 1;
inline constexpr int message_channels = 8;
inline constexpr int control_channel = first_message_channel + message_channels;
// An answer from a message's receiver to its sender, by the message's channel: the receiver has
// come to the message.
inline constexpr int first_answer_channel = control_channel + 1;
inline constexpr int channel_count = first_answer_channel + message_channels;

}  // namespace trident

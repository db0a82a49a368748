// One operation of one group, as one member carries it out: its messages to the other members and
// its rendezvous with them. Each is checked against this member's own descriptor. Errors name the
// group, the ranks, both operations and the sequence number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "kernels/peers.h"
#include "parallel/collectives/communicator.h"
#include "parallel/collectives/host_runs.h"
#include "parallel/operation_log.h"
#include "parallel/transport/endpoint.h"

namespace trident {

// A group, as one of its members sees it.
struct Membership {
  std::shared_ptr<Endpoint> endpoint;
  std::string name;
  std::uint64_t id = 0;
  std::vector<int> members;  // world ranks by group rank
  int rank = 0;              // of this member in the group
  std::atomic<std::int64_t> bytes_sent{0};
  std::shared_ptr<OperationLog> log;  // null: none
  std::uint8_t log_number = 0;
  std::unique_ptr<SharedRendezvous> rendezvous;  // null where members send messages instead
  // Of a group that spans hosts with neighbours; null for other groups, and where members share no
  // memory.
  std::unique_ptr<HostRuns> runs;
  bool reductions_opened = false;  // the endpoint's own reductions are open
  bool without_timeout = false;    // its waits last as long as the members live
  // Carries tensors on GPUs between the members; null: the endpoint carries them.
  std::shared_ptr<CommunicatorLibrary> library;
  // The library's communicator, made with the group's first operation on a GPU tensor.
  std::shared_ptr<Communicator> communicator;
  // Events of GPU tensors, made with the group's first operation on one. `ready`: this member's
  // buffers are ready in its queue. `done`: its queue is done with the others' buffers.
  std::shared_ptr<DeviceEvent> ready, done;

  // The program's own rows (TransportOptions::more_collectives).
  std::span<const Collective> more_collectives() const;
};

// The way in which an operation reaches memory: at once, or through a GPU's queue.
struct Backend;
struct Reach {
  Access access = Access{};
  const Backend* backend = nullptr;  // null: the CPU's
};

class Exchange {
 public:
  // Throws AbortedError if the world is aborted. With `looks` a wait may spin for a few hundred
  // microseconds.
  Exchange(Membership& group, const Descriptor& descriptor, int channel = collective_channel,
           bool looks = false, const Reach& reach = {});

  // The table of an all_to_all_v, which must outlive the exchange.
  void set_counts(const CountsTable* counts) { counts_ = counts; }
  const CountsTable& counts() const { return *counts_; }

  // A message on its way to or from a member.
  struct Transfer {
    std::unique_ptr<Request> request;
    int peer = 0;  // group rank
    bool receives = false;
  };

  int rank() const { return group_.rank; }
  int size() const { return static_cast<int>(group_.members.size()); }
  const Descriptor& descriptor() const { return descriptor_; }

  // Sends a message, and counts its bytes as sent.
  Transfer send(int peer, const void* data, std::size_t bytes,
                std::shared_ptr<QueueSide> side = nullptr);
  // Sends a message without counting it: count_sent() has counted it, or it isn't the operation's
  // own.
  Transfer forward(int peer, const void* data, std::size_t bytes);
  Transfer receive(int peer, void* data, std::size_t bytes,
                   std::shared_ptr<QueueSide> side = nullptr);
  Transfer receive_view(int peer, void* staging, std::size_t bytes);

  // Waits for all transfers. Throws CommunicationError (a late or ended peer, a mismatch) or
  // AbortedError.
  void wait(std::span<Transfer> transfers);
  void wait(Transfer& transfer) { wait(std::span(&transfer, 1)); }

  // This member's shared-memory rendezvous, or null where the members share no memory. For
  // collectives only.
  SharedRendezvous* rendezvous() const {
    return channel_ == collective_channel ? group_.rendezvous.get() : nullptr;
  }
  // Shows this member's buffers to the others; throws like wait(). The caller then calls finish()
  // on the rendezvous, or leave(). In a GPU's queue, work after arrive() waits for the others'
  // buffers to be ready, and work after leave() waits for the others to be done with this member's
  // buffers.
  void arrive(const void* input, void* output);
  void leave();
  // The buffers that a member has shown, after arrive().
  const std::byte* input(int member) const;
  std::byte* output(int member) const;
  // Copies from an address in another member's memory, where members fetch (Sharing::fetches).
  // Throws CommunicationError that names the operation where the system refuses.
  void fetch(int member, std::byte* to, const std::byte* from, std::size_t bytes);
  // copy() and reduce() work on memory of any member, in the operation's order. on_host() is false
  // where they go through a GPU's queue.
  bool on_host() const { return reach_.access.queue() == nullptr; }
  void copy(void* to, const void* from, std::size_t bytes) const;
  void reduce(std::span<const void* const> sources, std::span<void* const> places,
              std::int64_t count) const;
  // A rendezvous without buffers. Members that share memory rendezvous in every collective, in
  // collectives that send messages, too.
  void arrive_without_buffers() {
    arrive(nullptr, nullptr);
    rendezvous()->finish();
  }
  // The host runs of a group that spans hosts with neighbours, else null.
  HostRuns* host_runs() const { return group_.runs.get(); }
  // open_inside() makes a group of the ranks [begin, end), which share a host. within() is this
  // operation among them.
  std::unique_ptr<Membership> open_inside(int begin, int end) const;
  Exchange within(Membership& inside) const {
    Exchange exchange(inside, descriptor_, collective_channel, look_ != look_.zero());
    exchange.grace_ = grace_;
    return exchange;
  }
  // The endpoint's own reductions, in the memory of this member. In errors the member before this
  // one stands for the others.
  bool reductions_opened() const { return group_.reductions_opened; }
  void open_reductions();
  Transfer reduce_by_transport(void* data, std::int64_t n);
  // The communicator of GPU tensors where a library carries them, else null. access() is the
  // operation's queue.
  Communicator* communicator() const { return on_host() ? nullptr : group_.communicator.get(); }
  const Access& access() const { return reach_.access; }
  bool reduced_by_library() const { return group_.library->reduces(descriptor_.reduce_op); }
  // Waits for the member before this one to come to the same operation; throws like wait(). Later
  // waits of this member time out a little later. They may be for members that wait for the late
  // member themselves, and the member after the late one, which names it here, has to report first.
  void compare() {
    announce();
    wait(std::span<Transfer>());
    grace_ = naming_grace;
  }
  // Counts bytes as if a message had carried them.
  void count_sent(std::size_t bytes) {
    group_.bytes_sent.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
    sent_ += static_cast<std::int64_t>(bytes);
  }

  // Sends the descriptor to the next member. The first wait() compares the previous member's
  // descriptor. For operations in which not every member receives something from the member before
  // it.
  void announce();

 private:
  [[noreturn]] void report(Outcome outcome, std::span<Transfer> transfers, std::size_t failed);
  [[noreturn]] void fail(const std::string& text);
  [[noreturn]] void report_mismatch(int peer, const Descriptor& theirs);
  [[noreturn]] void report_ended(const std::string& text, int peer);
  [[noreturn]] void report_late(const std::string& text, std::vector<int> late);
  std::string place() const;
  std::string text_of(const Descriptor&) const;
  Countdown countdown() const;  // for a wait that begins now
  int world_rank(int peer) const { return group_.members[static_cast<std::size_t>(peer)]; }
  // A member of a GPU group shows a ShownBuffers in place of its buffers.
  struct ShownBuffers {
    const std::byte* input;
    std::byte* output;
    const std::shared_ptr<DeviceEvent>*ready, *done;
  };
  const ShownBuffers& shown_by(int member) const {
    return *reinterpret_cast<const ShownBuffers*>(group_.rendezvous->input(member));
  }

  friend class LoggedSpan;
  Membership& group_;
  const CountsTable* counts_ = nullptr;
  std::int64_t sent_ = 0;  // bytes sent by this operation
  Descriptor descriptor_;
  int channel_;
  std::chrono::microseconds look_;  // spin time of the first rendezvous
  static constexpr std::chrono::milliseconds naming_grace{500};
  std::chrono::milliseconds grace_{};  // beyond the timeout
  bool met_ = false;
  Reach reach_;
  std::vector<Transfer> announced_;
  std::vector<std::shared_ptr<DeviceEvent>> others_done_;  // their groups may end after leave()
};

// Records an operation in its group's log, from here to the end of the scope, where the log is on.
class LoggedSpan {
 public:
  // `peer`: the group rank at the other end of a message.
  explicit LoggedSpan(const Exchange& exchange, int peer = -1, Purpose purpose = Purpose::none);
  LoggedSpan(const LoggedSpan&) = delete;
  LoggedSpan& operator=(const LoggedSpan&) = delete;
  ~LoggedSpan();

 private:
  const Exchange& exchange_;
  int peer_;
  Purpose purpose_;
  std::int64_t begin_ns_ = 0, sent_ = 0;
  bool on_;
};

// Part i of `count` elements, split into `parts`: [begin, end). The sizes differ by at most one.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};
Segment segment_of(std::int64_t count, int parts, int i);

}  // namespace trident

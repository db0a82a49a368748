// One operation of one group, as one member carries it out: messages to the other members, each
// checked against this member's own descriptor, and the errors that name everything.
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

// A group seen by one member.
struct Membership {
  std::shared_ptr<Endpoint> endpoint;
  std::string name;
  std::uint64_t id = 0;
  std::vector<int> members;  // world ranks by group rank
  int rank = 0;              // of this member in the group
  std::atomic<std::int64_t> bytes_sent{0};
  std::shared_ptr<OperationLog> log;  // null: none
  std::uint8_t log_number = 0;
  std::unique_ptr<SharedRendezvous> meeting;  // null where members send messages
  // Of a group that spans hosts with neighbours; null: another, or one whose members share nothing.
  std::unique_ptr<HostRuns> runs;
  bool reductions_opened = false;  // of the endpoint's own
  bool without_timeout = false;    // waits as long as the members live
  // Carries tensors on GPUs between the members; null: the endpoint does.
  std::shared_ptr<CommunicatorLibrary> library;
  // The library's, made with the group's first operation on such a tensor.
  std::shared_ptr<Communicator> communicator;
  // Of tensors on a GPU, made with the group's first operation: when this member's queue has its
  // buffers ready, and when it is done with the others'.
  std::shared_ptr<DeviceEvent> ready, done;

  // The program's own (TransportOptions).
  std::span<const Collective> more_collectives() const;
};

// How an operation reaches memory: at once, or through a GPU's queue.
struct Backend;
struct Reach {
  Access access = Access{};
  const Backend* backend = nullptr;  // null: the CPU's
};

class Exchange {
 public:
  // Throws AbortedError if the world is aborted.
  // `looks`: waiting may cost a few hundred microseconds of a core.
  Exchange(Membership& group, const Descriptor& descriptor, int channel = collective_channel,
           bool looks = false, const Reach& reach = {});

  // A message on its way to or from a member.
  struct Transfer {
    std::unique_ptr<Request> request;
    int peer = 0;  // group rank
    bool receives = false;
  };

  int rank() const { return group_.rank; }
  int size() const { return static_cast<int>(group_.members.size()); }
  const Descriptor& descriptor() const { return descriptor_; }

  // Counts as many bytes as sent as the message has.
  Transfer send(int peer, const void* data, std::size_t bytes,
                std::shared_ptr<QueueSide> side = nullptr);
  // A message that count_sent() has counted, or that isn't the operation's own.
  Transfer forward(int peer, const void* data, std::size_t bytes);
  Transfer receive(int peer, void* data, std::size_t bytes,
                   std::shared_ptr<QueueSide> side = nullptr);
  Transfer receive_view(int peer, void* staging, std::size_t bytes);

  // Waits for all; throws CommunicationError (a late or ended peer, a mismatch) or AbortedError.
  void wait(std::span<Transfer> transfers);
  void wait(Transfer& transfer) { wait(std::span(&transfer, 1)); }

  // Where the members share memory: this one's seat, else null. For collectives only.
  SharedRendezvous* meeting() const {
    return channel_ == collective_channel ? group_.meeting.get() : nullptr;
  }
  // Shows this member's buffers to the others; throws like wait(). Then finish or leave. In a GPU's
  // queue what follows waits for the others' buffers to be ready, and after leave() for the others
  // to be done with this member's.
  void meet(const void* input, void* output);
  void leave();
  // What a member has shown, after meet().
  const std::byte* input(int member) const;
  std::byte* output(int member) const;
  // Where members fetch: a copy from an address in another's memory. Throws CommunicationError
  // naming the operation where the system refuses.
  void fetch(int member, std::byte* to, const std::byte* from, std::size_t bytes);
  // On memory of any member, in the operation's order.
  bool on_host() const { return reach_.access.queue() == nullptr; }
  void copy(void* to, const void* from, std::size_t bytes) const;
  void reduce(std::span<const void* const> sources, std::span<void* const> places,
              std::int64_t count) const;
  // Members that share memory meet in every collective, in those that send messages too.
  void agree() {
    meet(nullptr, nullptr);
    meeting()->finish();
  }
  // Where the group spans hosts with neighbours, else null.
  HostRuns* host_runs() const { return group_.runs.get(); }
  // Group ranks [begin, end), which share a host, and this operation among them.
  std::unique_ptr<Membership> open_inside(int begin, int end) const;
  Exchange within(Membership& inside) const {
    Exchange exchange(inside, descriptor_, collective_channel, look_ != look_.zero());
    exchange.grace_ = grace_;
    return exchange;
  }
  // The endpoint's own reductions, in the memory of this member; the one before this one stands for
  // the others in errors.
  bool reductions_opened() const { return group_.reductions_opened; }
  void open_reductions();
  Transfer reduce_by_transport(void* data, std::int64_t n);
  // Of tensors on a GPU, where a library carries them; else null. The operation's queue.
  Communicator* communicator() const { return on_host() ? nullptr : group_.communicator.get(); }
  const Access& access() const { return reach_.access; }
  bool reduced_by_library() const { return group_.library->reduces(descriptor_.reduce_op); }
  // Waits for the member before this one to come to the same operation; throws like wait(). Waits
  // after this one take a little longer to be too late: they may be for members that wait for the
  // late one themselves, and the member behind that one, which names it here, has to speak first.
  void compare() {
    announce();
    wait(std::span<Transfer>());
    grace_ = naming_grace;
  }
  // Counts what a message would have carried.
  void count_sent(std::size_t bytes) {
    group_.bytes_sent.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
    sent_ += static_cast<std::int64_t>(bytes);
  }

  // Sends the descriptor to the next member; the first wait() compares the previous member's. For
  // operations in which not every member receives something from the member before it.
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
  // What a member of a GPU group shows in place of its buffers.
  struct Card {
    const std::byte* input;
    std::byte* output;
    const std::shared_ptr<DeviceEvent>*ready, *done;
  };
  const Card& card(int member) const {
    return *reinterpret_cast<const Card*>(group_.meeting->input(member));
  }

  friend class LoggedSpan;
  Membership& group_;
  std::int64_t sent_ = 0;  // by this operation
  Descriptor descriptor_;
  int channel_;
  std::chrono::microseconds look_;  // of the first meeting
  static constexpr std::chrono::milliseconds naming_grace{500};
  std::chrono::milliseconds grace_{};  // beyond the timeout
  bool met_ = false;
  Reach reach_;
  std::vector<Transfer> announced_;
  std::vector<std::shared_ptr<DeviceEvent>> others_done_;  // their groups may go after leave()
};

// Enters an operation into its group's log, from here to the end of the scope, where that is on.
class LoggedSpan {
 public:
  // `peer`: group rank at the other end of a message.
  explicit LoggedSpan(const Exchange& exchange, int peer = -1);
  LoggedSpan(const LoggedSpan&) = delete;
  LoggedSpan& operator=(const LoggedSpan&) = delete;
  ~LoggedSpan();

 private:
  const Exchange& exchange_;
  int peer_;
  std::int64_t begin_ns_ = 0, sent_ = 0;
  bool on_;
};

// Part i of `count` elements cut over `parts`: [begin, end), sizes differ by at most one.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};
Segment segment_of(std::int64_t count, int parts, int i);

}  // namespace trident

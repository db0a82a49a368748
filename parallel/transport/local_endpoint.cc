// Messages between the ranks of one process. The side that completes a pair of send and receive,
// sender or receiver, copies straight from the send's buffer to the receive's. Small messages, and
// all point-to-point messages under injected latency, are copied when they are sent.
#include <algorithm>
#include <cstring>

#include "parallel/transport/local_world.h"

namespace trident::local {
namespace {

using Lock = std::unique_lock<std::mutex>;
using Clock = std::chrono::steady_clock;

constexpr std::size_t eager_bytes = 8192;
constexpr std::chrono::microseconds spin_time{20};

void take_copy(Send& send) {
  send.owned = std::make_unique_for_overwrite<std::byte[]>(send.bytes);
  if (send.bytes > 0) std::memcpy(send.owned.get(), send.data, send.bytes);
  send.data = send.owned.get();
  send.complete.store(true, std::memory_order_release);
}

// Copies a message's bytes, or enqueues the copy in the receiver's queue.
void move(Send& send, const Receive& receive) {
  if (receive.side == nullptr) {
    std::memcpy(receive.data, send.data, receive.bytes);
    return;
  }
  const QueueSide& to = *receive.side;
  to.queue->enqueue([&](const Access& access) {
    send.side->ready->wait(access);
    to.ready->wait(access);
    to.copy(access, receive.data, send.data, receive.bytes);
    to.moved->record(access);
  });
  send.side->moved = to.moved;
}

// Moves a matched message. The lock is held on entry and released on return, because the notified
// threads need it.
void transfer(Lock lock, std::shared_ptr<Send> send, std::shared_ptr<Receive> receive) {
  if (receive->is_view) {
    send->claimed = true;  // until the receive is destroyed
  } else {
    if (receive->bytes > 0 || receive->side != nullptr) {
      send->claimed = receive->claimed = true;
      lock.unlock();
      move(*send, *receive);
      lock.lock();
      send->claimed = receive->claimed = false;
    }
    send->complete.store(true, std::memory_order_release);
  }
  receive->complete.store(true, std::memory_order_release);
  lock.unlock();
  send->changed.notify_all();
  receive->changed.notify_all();
}

// Pairs a message with a receive, both out of their queues. The lock is treated as in transfer().
void meet(Lock lock, std::shared_ptr<Send> send, std::shared_ptr<Receive> receive) {
  receive->got = send->descriptor;
  if (send->descriptor != receive->expected || send->bytes != receive->bytes) {
    receive->mismatch = true;
    receive->complete.store(true, std::memory_order_release);
  } else {
    receive->source = send;
    if (send->deliver_at <= Clock::now()) {
      return transfer(std::move(lock), std::move(send), std::move(receive));
    }
  }
  lock.unlock();
  receive->changed.notify_all();  // the receiver completes an early message when it is due
}

// Lets abort and end wake a thread that waits in a mailbox. It is made and destroyed under the
// mailbox's lock.
class Sleeper {
 public:
  Sleeper(Mailbox& box, std::condition_variable& changed) : box_(box), changed_(changed) {
    box_.sleepers.push_back(&changed_);
  }
  ~Sleeper() {
    box_.sleepers.erase(std::find(box_.sleepers.begin(), box_.sleepers.end(), &changed_));
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  Mailbox& box_;
  std::condition_variable& changed_;
};

// Spins shortly until `complete`, only where every rank has a core of its own.
bool spin(const World& world, const std::atomic<bool>& complete) {
  if (complete.load(std::memory_order_acquire)) return true;
  if (!world.spins()) return false;
  const auto end = Clock::now() + spin_time;
  while (Clock::now() < end) {
    if (complete.load(std::memory_order_acquire)) return true;
  }
  return false;
}

class SendRequest final : public Request {
 public:
  SendRequest(std::shared_ptr<World> world, std::shared_ptr<Send> send, LinkKey key, int peer)
      : world_(std::move(world)), send_(std::move(send)), key_(key), peer_(peer) {}

  ~SendRequest() override {
    if (send_->complete.load(std::memory_order_acquire)) return;
    Mailbox& box = world_->mailbox(peer_);
    Lock lock(box.mutex);
    send_->changed.wait(lock, [&] { return !send_->claimed; });
    if (send_->complete.load(std::memory_order_relaxed)) return;
    auto& messages = box.links[key_].messages;
    const auto place = std::find(messages.begin(), messages.end(), send_);
    if (place == messages.end()) return;                // the receiver refused it
    if (world_->aborted() || send_->side != nullptr) {  // a GPU message is kept until it is taken
      messages.erase(place);
    } else {
      take_copy(*send_);
    }
  }

  bool test() override { return send_->complete.load(std::memory_order_acquire); }

  Outcome wait(Countdown& countdown) override {
    if (spin(*world_, send_->complete)) return Outcome::complete;
    Mailbox& box = world_->mailbox(peer_);
    Lock lock(box.mutex);
    const Sleeper sleeper(box, send_->changed);
    const WaitTable::Entry entry(world_->waits(key_.sender), [this] { return peer_; });
    for (;;) {
      if (send_->complete.load(std::memory_order_acquire)) return Outcome::complete;
      if (send_->claimed) {  // the reader finishes, or its own wait ends
        send_->changed.wait(lock);
        continue;
      }
      if (world_->aborted()) world_->throw_aborted(key_.sender);
      if (world_->ended(peer_)) return Outcome::peer_ended;
      if (countdown.over()) return Outcome::late;
      send_->changed.wait_until(lock, countdown.next_look());
    }
  }

  const Descriptor& peer_descriptor() const override { return send_->descriptor; }
  const std::byte* view() const override { return nullptr; }

 private:
  std::shared_ptr<World> world_;
  std::shared_ptr<Send> send_;
  LinkKey key_;
  int peer_;
};

class ReceiveRequest final : public Request {
 public:
  ReceiveRequest(std::shared_ptr<World> world, std::shared_ptr<Receive> receive, LinkKey key,
                 int rank)
      : world_(std::move(world)), receive_(std::move(receive)), key_(key), rank_(rank) {}

  ~ReceiveRequest() override {
    Mailbox& box = world_->mailbox(rank_);
    Lock lock(box.mutex);
    receive_->changed.wait(lock, [&] { return !receive_->claimed; });
    if (!receive_->complete.load(std::memory_order_relaxed)) {
      std::erase(box.links[key_].receives, receive_);
    } else if (receive_->is_view && receive_->source != nullptr) {
      const auto source = receive_->source;
      source->claimed = false;
      source->complete.store(true, std::memory_order_release);
      lock.unlock();
      source->changed.notify_all();
    }
  }

  bool test() override {
    if (receive_->complete.load(std::memory_order_acquire)) return true;
    Lock lock(world_->mailbox(rank_).mutex);
    if (receive_->complete.load(std::memory_order_acquire)) return true;
    if (!arrived()) return false;
    transfer(std::move(lock), receive_->source, receive_);
    return true;
  }

  Outcome wait(Countdown& countdown) override {
    if (spin(*world_, receive_->complete)) return outcome();
    Mailbox& box = world_->mailbox(rank_);
    Lock lock(box.mutex);
    {
      const Sleeper sleeper(box, receive_->changed);
      const WaitTable::Entry entry(world_->waits(rank_), [this] { return key_.sender; });
      while (!arrived()) {
        if (receive_->complete.load(std::memory_order_acquire)) return outcome();
        if (receive_->claimed) {
          receive_->changed.wait(lock);
          continue;
        }
        if (world_->aborted()) world_->throw_aborted(rank_);
        if (receive_->source != nullptr) {
          receive_->changed.wait_until(lock, receive_->source->deliver_at);
          continue;
        }
        if (world_->ended(key_.sender)) return Outcome::peer_ended;
        if (countdown.over()) return Outcome::late;
        receive_->changed.wait_until(lock, countdown.next_look());
      }
    }
    transfer(std::move(lock), receive_->source, receive_);
    return Outcome::complete;
  }

  const Descriptor& peer_descriptor() const override { return receive_->got; }
  const std::byte* view() const override { return receive_->source->data; }

 private:
  Outcome outcome() const { return receive_->mismatch ? Outcome::mismatch : Outcome::complete; }
  // Whether a message that was matched before its time may be moved now. Called under the lock.
  bool arrived() const {
    return receive_->source != nullptr && !receive_->claimed &&
           !receive_->complete.load(std::memory_order_acquire) &&
           receive_->source->deliver_at <= Clock::now();
  }

  std::shared_ptr<World> world_;
  std::shared_ptr<Receive> receive_;
  LinkKey key_;
  int rank_;
};

class LocalEndpoint final : public Endpoint {
 public:
  LocalEndpoint(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return world_->size(); }
  Nodes nodes() const override {
    return Nodes::consecutive(size(),
                              options().ranks_per_node > 0 ? options().ranks_per_node : size());
  }
  const TransportOptions& options() const override { return world_->options(); }
  FileTimes* file_times() override { return &world_->file_times(rank_); }
  bool files_hold_up() override { return world_->files_hold_up(); }
  std::string waits_of(int rank) override {
    return text_of_waits(rank, [&](int at) { return world_->waits(at).rank(); });
  }
  bool needs_staging() const override { return false; }
  bool reaches_gpus() const override { return true; }
  std::unique_ptr<SharedRendezvous> open_rendezvous(std::uint64_t group,
                                                    const std::vector<int>& members) override {
    return make_rendezvous(world_, group, members, rank_);
  }

  std::unique_ptr<Request> post_send(int peer, int channel, const Descriptor& descriptor,
                                     const void* data, std::size_t bytes,
                                     std::shared_ptr<QueueSide> side) override {
    auto send = std::make_shared<Send>();
    send->descriptor = descriptor;
    send->data = static_cast<const std::byte*>(data);
    send->bytes = bytes;
    send->side = std::move(side);
    const bool delayed =
        descriptor.operation == Operation::message && options().injected_latency.count() > 0;
    if (delayed) {
      send->deliver_at = Clock::now() + options().injected_latency;
      if (send->side == nullptr) take_copy(*send);
    }
    const LinkKey key{descriptor.group, rank_, channel};
    Mailbox& box = world_->mailbox(peer);
    Lock lock(box.mutex);
    Link& link = box.links[key];
    if (link.receives.empty()) {
      if (bytes <= eager_bytes && !delayed && send->side == nullptr) take_copy(*send);
      link.messages.push_back(send);
    } else {
      auto receive = std::move(link.receives.front());
      link.receives.pop_front();
      meet(std::move(lock), send, std::move(receive));
    }
    return std::make_unique<SendRequest>(world_, std::move(send), key, peer);
  }

  std::unique_ptr<Request> post_receive(int peer, int channel, const Descriptor& expected,
                                        void* data, std::size_t bytes,
                                        std::shared_ptr<QueueSide> side) override {
    return post(peer, channel, expected, data, bytes, false, std::move(side));
  }
  std::unique_ptr<Request> post_receive_view(int peer, int channel, const Descriptor& expected,
                                             void*, std::size_t bytes) override {
    return post(peer, channel, expected, nullptr, bytes, true, nullptr);
  }

  void check() const override {
    if (world_->aborted()) world_->throw_aborted(rank_);
  }
  void fail(std::exception_ptr error) noexcept override { world_->fail(rank_, error); }
  void abort(const std::string& reason) noexcept override { world_->abort(rank_, reason); }

 private:
  std::unique_ptr<Request> post(int peer, int channel, const Descriptor& expected, void* data,
                                std::size_t bytes, bool is_view, std::shared_ptr<QueueSide> side) {
    auto receive = std::make_shared<Receive>();
    receive->expected = expected;
    receive->data = static_cast<std::byte*>(data);
    receive->bytes = bytes;
    receive->is_view = is_view;
    receive->side = std::move(side);
    const LinkKey key{expected.group, peer, channel};
    Mailbox& box = world_->mailbox(rank_);
    Lock lock(box.mutex);
    Link& link = box.links[key];
    if (link.messages.empty()) {
      link.receives.push_back(receive);
    } else {
      auto send = std::move(link.messages.front());
      link.messages.pop_front();
      meet(std::move(lock), std::move(send), receive);
    }
    return std::make_unique<ReceiveRequest>(world_, std::move(receive), key, rank_);
  }

  std::shared_ptr<World> world_;
  int rank_;
};

}  // namespace

std::shared_ptr<Endpoint> make_endpoint(std::shared_ptr<World> world, int rank) {
  return std::make_shared<LocalEndpoint>(std::move(world), rank);
}

}  // namespace trident::local

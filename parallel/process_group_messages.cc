// Point-to-point messages of ProcessGroup.
#include <fmt/format.h>

#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "kernels/backend.h"
#include "parallel/process_group.h"
#include "parallel/process_group_alone.h"
#include "parallel/process_group_checks.h"
#include "parallel/queued_work.h"

namespace trident {
namespace {

struct Message {
  Message(GroupHandle g, const Descriptor& d, int c, Tensor t)
      : group(std::move(g)), descriptor(d), channel(c), tensor(std::move(t)) {}

  void post(const Access& access, int peer, bool receives) {
    const std::lock_guard lock(mutex);
    if (side != nullptr) side->ready->record(access);
    exchange.emplace(group->membership, descriptor, channel);
    const auto bytes = static_cast<std::size_t>(tensor.bytes());
    void* at = TensorAddress::of(access, tensor);
    std::optional<LoggedSpan> span;  // only the sender logs a message
    if (!receives) span.emplace(*exchange, peer);
    transfer =
        receives ? exchange->receive(peer, at, bytes, side) : exchange->send(peer, at, bytes, side);
  }
  void wait() {
    const std::lock_guard lock(mutex);
    if (error) std::rethrow_exception(error);
    if (complete) return;
    try {
      exchange->wait(transfer);
    } catch (...) {
      error = std::current_exception();
    }
    transfer.request.reset();
    if (side == nullptr) tensor = Tensor();
    complete = true;
    if (error) std::rethrow_exception(error);
  }
  // Whether the send buffer is free, or the receive buffer is filled.
  bool done() const {
    const std::unique_lock lock(mutex, std::try_to_lock);  // taken: another thread waits
    if (!lock.owns_lock()) return false;
    if (!complete && (transfer.request == nullptr || !transfer.request->test())) return false;
    return side == nullptr || side->moved == nullptr || side->moved->reached();
  }

  mutable std::mutex mutex;
  GroupHandle group;
  Descriptor descriptor;
  int channel;
  Tensor tensor;
  std::optional<Exchange> exchange;
  Exchange::Transfer transfer;      // destroyed before the tensor
  std::shared_ptr<QueueSide> side;  // for a tensor on a GPU
  bool complete = false;
  std::exception_ptr error;
};

struct MessageWork final : Work::Impl {
  explicit MessageWork(std::shared_ptr<Message> m) : message(std::move(m)) {}
  void wait(const Access&) override { message->wait(); }
  bool done() const override { return message->done(); }
  std::shared_ptr<Message> message;
};

// A message of a GPU tensor whose Work has been dropped. A send still arrives; a receive is
// cancelled if the peer has not sent.
struct DroppedMessage final : Pending {
  explicit DroppedMessage(std::shared_ptr<Message> m) : message(std::move(m)) {}
  bool done() const override { return message->done(); }
  void finish() noexcept override {
    try {
      message->wait();
      message->side->moved->synchronize();
    } catch (...) {
      // The error ends all ranks, or the receiver has ended.
    }
  }
  std::shared_ptr<Message> message;
};
struct QueueMessageWork final : Work::Impl {
  QueueMessageWork(Context& c, std::shared_ptr<Message> m, bool r)
      : context(c), message(std::move(m)), receives(r) {}
  ~QueueMessageWork() override {
    try {
      if (waited || message->transfer.request == nullptr || message->done()) return;
      if (receives && !message->transfer.request->test()) return;
    } catch (const std::exception&) {
      // The device has failed, and its next use reports that.
    }
    context.keep(std::make_shared<DroppedMessage>(message));
  }
  void wait(const Access& access) override {
    message->wait();
    message->side->moved->wait(access);
    waited = true;
  }
  bool done() const override { return message->done(); }
  Context& context;
  std::shared_ptr<Message> message;
  bool receives;
  bool waited = false;
};

// The host messages that go with a message that a library carries. The sender's host announces it,
// so that a late or unexpected message is an error at the receiver. The receiver's host answers
// when it has reached the message. The library's kernels, which hold their GPUs until both run,
// then wait only for a launch. The first answer of a link carries the key of its communicator.
struct Handshake {
  Handshake(ProcessGroup::Impl& impl, const Descriptor& d, int peer, int channel, bool receives,
            bool first)
      : announcements(impl.membership, d, first_message_channel + channel),
        answers(impl.membership, d, first_answer_channel + channel) {
    announced =
        receives ? announcements.receive(peer, nullptr, 0) : announcements.send(peer, nullptr, 0);
    if (d.count == 0) return;
    CommunicatorLibrary& library = *impl.membership.library;
    if (first && receives) key = library.make_key();
    if (first && !receives) key.resize(library.key_bytes());
    answer = receives ? answers.send(peer, key.data(), key.size())
                      : answers.receive(peer, key.data(), key.size());
  }

  Exchange announcements, answers;
  std::vector<std::byte> key;
  Exchange::Transfer announced, answer;  // destroyed before the objects they use
};

Work by_communicator(const GroupHandle& group, Context& context, const Descriptor& d,
                     const Tensor& tensor, int peer, int channel, bool receives) {
  ProcessGroup::Impl& impl = *group;
  impl.membership.endpoint->check();
  ProcessGroup::Impl::Link& link = impl.link(context.device(), peer, channel, receives);
  const auto claim = std::make_shared<std::atomic<Claim>>(Claim::none);
  const bool first = !std::exchange(link.opened, link.opened || d.count > 0);
  const auto hosts = std::make_shared<Handshake>(impl, d, peer, channel, receives, first);
  const auto run = [&impl, &link, claim, hosts, device = &context.device(), tensor, peer,
                    receives](const Access& access) {
    Exchange::Transfer& announced = hosts->announced;
    // A receive may stay pending until its Work is waited for. A receive whose Work was dropped
    // ends if the peer has not sent.
    constexpr std::chrono::milliseconds look{20};
    while (receives && *claim == Claim::none) {
      Countdown countdown(look);
      const Outcome outcome = announced.request->wait(countdown);
      if (outcome == Outcome::complete || outcome == Outcome::mismatch) break;
      if (outcome == Outcome::peer_ended) std::this_thread::sleep_for(look);
    }
    if (receives && *claim == Claim::dropped && !announced.request->test()) {
      announced.request.reset();  // it must not take the next message's announcement
      return;
    }
    hosts->announcements.wait(announced);
    const auto bytes = static_cast<std::size_t>(tensor.bytes());
    if (bytes == 0) return;
    hosts->answers.wait(hosts->answer);
    if (link.communicator == nullptr) {
      // Only the first message opens the communicator, and it may have failed.
      impl.membership.endpoint->check();
      if (hosts->key.empty()) {
        throw CommunicationError(
            fmt::format("group '{}': a link did not open", impl.membership.name));
      }
      link.communicator = impl.membership.library->open(
          hosts->key, impl.membership.name, 2, receives ? 1 : 0, *device, Carries::messages);
    }
    const Communicator::Part part{receives ? 0 : 1, TensorAddress::of(access, tensor), bytes};
    const std::span<const Communicator::Part> one(&part, 1);
    if (receives) {
      link.communicator->exchange(access, {}, one);
    } else {
      const LoggedSpan span(hosts->announcements, peer);
      hosts->announcements.count_sent(bytes);
      link.communicator->exchange(access, one, {});
    }
  };
  return Work(run_async(context, *link.thread, *link.stream, run, claim));
}

Work message(const GroupHandle& group, Context& context, const Tensor& tensor, int peer,
             Async async, int channel, bool receives) {
  const char* operation = receives ? "receive" : "send";
  need(group, operation, "tensor", tensor);
  need_member(group, operation, "peer", peer);
  if (peer == group->membership.rank) {
    throw RequestError(
        fmt::format("{}: peer {} is this rank itself", place(group, operation), peer));
  }
  if (channel < 0 || channel >= message_channels) {
    throw RequestError(fmt::format("{}: channel {} is not one of 0 to {}", place(group, operation),
                                   channel, message_channels - 1));
  }
  if (has_no_peers(context, group->membership)) {
    if (receives) {
      fill_placeholder(context, tensor);
    } else {
      const Descriptor d{
          .count = tensor.numel(), .operation = Operation::message, .dtype = tensor.dtype()};
      trace(context, group->membership, d, async);
      if (async == Async::yes) return planned_work(context, async);
    }
    return Work();
  }
  need_reach(group, operation, context);
  auto& counters = receives ? group->next_received : group->next_sent;
  counters.resize(group->membership.members.size());
  Descriptor d;
  d.group = group->membership.id;
  d.operation = Operation::message;
  d.dtype = tensor.dtype();
  d.count = tensor.numel();
  d.sequence = counters[static_cast<std::size_t>(peer)][static_cast<std::size_t>(channel)]++;
  group->operations.fetch_add(receives ? 0 : 1, std::memory_order_relaxed);
  if (context.device().kind() == DeviceKind::cuda && group->membership.library != nullptr) {
    const Work work = by_communicator(group, context, d, tensor, peer, channel, receives);
    if (async == Async::yes) return work;
    work.wait(context);
    return Work();
  }
  auto message = std::make_shared<Message>(group, d, first_message_channel + channel, tensor);
  std::shared_ptr<Work::Impl> work;
  if (context.device().kind() == DeviceKind::cuda) {
    message->side = std::make_shared<QueueSide>();
    message->side->ready = context.device().make_event();
    if (receives) {
      message->side->moved = context.device().make_event();
      message->side->queue = &group->side_stream(context.device());
      message->side->copy = backend_of(context).copy_peer;
    }
    work = std::make_shared<QueueMessageWork>(context, message, receives);
  } else {
    work = std::make_shared<MessageWork>(message);
  }
  context.stream().enqueue([work, message, peer, receives, async](const Access& access) {
    message->post(access, peer, receives);
    if (async == Async::no) work->wait(access);
  });
  return async == Async::no ? Work() : Work(std::move(work));
}

}  // namespace

Work ProcessGroup::send(Context& context, const Tensor& tensor, int peer, Async async,
                        int channel) const {
  return message(impl_, context, tensor, peer, async, channel, false);
}

Work ProcessGroup::receive(Context& context, const Tensor& tensor, int peer, Async async,
                           int channel) const {
  return message(impl_, context, tensor, peer, async, channel, true);
}

}  // namespace trident

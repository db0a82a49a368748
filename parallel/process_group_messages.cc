// Point-to-point messages of ProcessGroup.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/error.h"
#include "parallel/process_group.h"
#include "parallel/process_group_checks.h"

namespace trident {
namespace {

struct MessageWork final : Work::Impl {
  MessageWork(Group g, const Descriptor& d, int c, Tensor t)
      : group(std::move(g)), descriptor(d), channel(c), tensor(std::move(t)) {}

  void post(const Access& access, int peer, bool receives) {
    const std::lock_guard lock(mutex);
    exchange.emplace(group->membership, descriptor, channel);
    const auto bytes = static_cast<std::size_t>(tensor.bytes());
    void* at = TensorAddress::of(access, tensor);
    transfer = receives ? exchange->receive(peer, at, bytes) : exchange->send(peer, at, bytes);
  }
  void wait() override {
    const std::lock_guard lock(mutex);
    if (error) std::rethrow_exception(error);
    if (complete) return;
    try {
      exchange->wait(transfer);
    } catch (...) {
      error = std::current_exception();
    }
    transfer.request.reset();
    tensor = Tensor();
    complete = true;
    if (error) std::rethrow_exception(error);
  }
  bool done() const override {
    const std::unique_lock lock(mutex, std::try_to_lock);  // taken: somebody is waiting
    if (!lock.owns_lock()) return false;
    return complete || (transfer.request != nullptr && transfer.request->test());
  }

  mutable std::mutex mutex;
  Group group;
  Descriptor descriptor;
  int channel;
  Tensor tensor;
  std::optional<Exchange> exchange;
  Exchange::Transfer transfer;  // goes before the tensor
  bool complete = false;
  std::exception_ptr error;
};

Work message(const Group& group, Context& context, const Tensor& tensor, int peer, Async async,
             int channel, bool receives) {
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
  if (context.plans()) return Work();
  auto& counters = receives ? group->next_received : group->next_sent;
  counters.resize(group->membership.members.size());
  Descriptor d;
  d.group = group->membership.id;
  d.operation = Operation::message;
  d.dtype = tensor.dtype();
  d.count = tensor.numel();
  d.sequence = counters[static_cast<std::size_t>(peer)][static_cast<std::size_t>(channel)]++;
  group->operations.fetch_add(receives ? 0 : 1, std::memory_order_relaxed);
  auto work = std::make_shared<MessageWork>(group, d, first_message_channel + channel, tensor);
  context.stream().enqueue([work, peer, receives, async](const Access& access) {
    work->post(access, peer, receives);
    if (async == Async::no) work->wait();
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

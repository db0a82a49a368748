// Process groups: their properties, and how they are made from other groups.
#include "parallel/process_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/files/content_hash.h"
#include "kernels/backend.h"
#include "parallel/collectives/direct.h"
#include "parallel/process_group_alone.h"
#include "parallel/process_group_checks.h"

namespace trident {
namespace {

// A hash of a sequence of numbers and names.
class Hash {
 public:
  void add(const void* data, std::size_t bytes) {
    bytes_.append(static_cast<const char*>(data), bytes);
  }
  void add(std::uint64_t value) { add(&value, sizeof value); }
  std::uint64_t value() const { return content_hash(bytes_); }

 private:
  std::string bytes_;
};

// Announces a group, whose members are known, to its endpoint.
void open(Membership& group) {
  group.endpoint->open_group(group.id, group.name);
  if (group.library == nullptr) {
    group.rendezvous = group.endpoint->open_rendezvous(group.id, group.members);
    if (group.endpoint->shares_memory()) {
      group.runs = host_runs(group.endpoint->nodes(), group.members, group.rank);
    }
  }
}

GroupHandle make_group(const GroupHandle& parent, const std::vector<int>& members,
                       const std::string& name, std::uint64_t id) {
  const Membership& from = parent->membership;
  auto impl = std::make_shared<ProcessGroup::Impl>();
  impl->membership.endpoint = from.endpoint;
  impl->membership.library = from.library;
  impl->membership.without_timeout = from.without_timeout;
  impl->membership.name = name;
  impl->membership.id = id;
  for (std::size_t i = 0; i < members.size(); ++i) {
    impl->membership.members.push_back(from.members[static_cast<std::size_t>(members[i])]);
    if (members[i] == from.rank) impl->membership.rank = static_cast<int>(i);
  }
  open(impl->membership);
  return impl;
}

const Membership& checked(const GroupHandle& group, const char* operation) {
  need(group, operation);
  return group->membership;
}

}  // namespace

void Work::wait(Context& context) const {
  if (impl_ == nullptr) return;
  if (context.is_planning()) {
    OperationTrace* const trace = context.trace();
    if (trace != nullptr && std::exchange(impl_->trace, nullptr) == trace) {
      trace->add_wait(impl_->traced);
    }
    return impl_->wait(Access{});
  }
  context.stream().enqueue([impl = impl_](const Access& access) { impl->wait(access); });
}

bool Work::done() const {
  return impl_ == nullptr || impl_->done();
}

void ProcessGroup::Impl::run_in_order(std::function<void()> operation) {
  if (progress_ == nullptr || progress_->idle()) return operation();
  const auto task = std::make_shared<ProgressThread::Task>();
  progress_->push(task, std::move(operation));
  task->wait();
}

ProgressThread& ProcessGroup::Impl::progress() {
  if (progress_ == nullptr) progress_ = std::make_unique<ProgressThread>();
  return *progress_;
}

void ProcessGroup::Impl::prepare(Device& device, bool wants_communicator) {
  if (membership.ready == nullptr) {
    membership.ready = device.make_event();
    membership.done = device.make_event();
  }
  if (!wants_communicator || membership.communicator != nullptr || membership.library == nullptr ||
      membership.members.size() == 1) {
    return;
  }
  CommunicatorLibrary& library = *membership.library;
  // The first member makes the key; the hosts broadcast it.
  std::vector<std::byte> key =
      membership.rank == 0 ? library.make_key() : std::vector<std::byte>(library.key_bytes());
  Descriptor d;
  d.group = membership.id;
  d.operation = Operation::split;
  d.sequence = ~std::uint64_t{0};  // no split has this number
  d.root = 0;
  d.count = static_cast<std::int64_t>(key.size());
  d.dtype = DType::u8;
  Exchange exchange(membership, d, control_channel);
  direct::broadcast(exchange, {.input = key.data(), .output = key.data(), .n = d.count});
  membership.communicator =
      library.open(key, membership.name, static_cast<int>(membership.members.size()),
                   membership.rank, device, Carries::collectives);
}

ProcessGroup::Impl::Link& ProcessGroup::Impl::link(Device& device, int peer, int channel,
                                                   bool receives) {
  // Both ranks of a link file it under the same key, so that both destroy their links in the same
  // order.
  const int sender = receives ? peer : membership.rank,
            receiver = receives ? membership.rank : peer;
  Link& link = links_[{sender, receiver, channel}];
  if (link.stream == nullptr) {
    link.stream = device.make_stream();
    link.thread = std::make_unique<ProgressThread>();
  }
  return link;
}

Stream& ProcessGroup::Impl::side_stream(Device& device) {
  if (side_stream_ == nullptr) side_stream_ = device.make_stream();
  return *side_stream_;
}

Reach reach_of(Context& context, const Access& access) {
  return {.access = access, .backend = access.queue() == nullptr ? nullptr : &backend_of(context)};
}

int ProcessGroup::rank() const {
  return checked(impl_, "rank").rank;
}
int ProcessGroup::size() const {
  return static_cast<int>(checked(impl_, "size").members.size());
}
const std::string& ProcessGroup::name() const {
  return checked(impl_, "name").name;
}
const std::vector<int>& ProcessGroup::world_ranks() const {
  return checked(impl_, "world_ranks").members;
}
Traffic ProcessGroup::traffic() const {
  need(impl_, "traffic");
  return {impl_->membership.bytes_sent.load(), impl_->operations.load()};
}

void ProcessGroup::log(std::shared_ptr<OperationLog> log, std::uint8_t group) const {
  need(impl_, "log");
  impl_->membership.log = std::move(log);
  impl_->membership.log_number = group;
}

ProcessGroup ProcessGroup::subgroup(std::span<const int> members, const std::string& name) const {
  need(impl_, "subgroup");
  std::vector<int> sorted(members.begin(), members.end());
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty() || sorted.front() < 0 || sorted.back() >= size() ||
      std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end() ||
      !std::binary_search(sorted.begin(), sorted.end(), rank())) {
    throw RequestError(fmt::format(
        "{}: members {} of '{}' must be distinct ranks 0 to {} and contain the caller, {}",
        place(impl_, "subgroup"), rank_list(members), name, size() - 1, rank()));
  }
  Hash hash;
  hash.add(impl_->membership.id);
  hash.add(name.data(), name.size());
  for (const int member : members) hash.add(static_cast<std::uint64_t>(member));
  const std::uint64_t times = impl_->subgroups[hash.value()]++;  // a repeat makes another group
  hash.add(times);
  return ProcessGroup(
      make_group(impl_, std::vector<int>(members.begin(), members.end()), name, hash.value()));
}

ProcessGroup ProcessGroup::duplicate(const std::string& name) const {
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  return subgroup(all, name);
}

ProcessGroup ProcessGroup::without_timeout(const std::string& name) const {
  ProcessGroup group = duplicate(name);
  group.impl_->membership.without_timeout = true;
  return group;
}

FileWork ProcessGroup::file_work() const {
  return FileWork(checked(impl_, "file_work").endpoint->file_times());
}

ProcessGroup ProcessGroup::split(int color, int key, const std::string& name) const {
  need(impl_, "split");
  struct Choice {
    std::int32_t color, key;
  };
  std::vector<Choice> choices(static_cast<std::size_t>(size()));
  const Choice own{color, key};
  choices[static_cast<std::size_t>(rank())] = own;
  Descriptor d;
  d.group = impl_->membership.id;
  d.sequence = impl_->next_split++;
  d.operation = Operation::split;
  d.count = sizeof(Choice);
  if (size() > 1) {
    Exchange exchange(impl_->membership, d, control_channel);
    direct::all_gather(exchange, {.input = reinterpret_cast<const std::byte*>(&own),
                                  .output = reinterpret_cast<std::byte*>(choices.data()),
                                  .n = d.count});
  }
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    if (choices[static_cast<std::size_t>(r)].color == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return choices[static_cast<std::size_t>(a)].key < choices[static_cast<std::size_t>(b)].key;
  });
  Hash hash;
  hash.add(impl_->membership.id);
  hash.add(d.sequence);
  hash.add(static_cast<std::uint64_t>(color));
  hash.add(name.data(), name.size());
  return ProcessGroup(make_group(impl_, members, name, hash.value()));
}

void ProcessGroup::connect(Context& context, std::span<const ProcessGroup> groups) const {
  need(impl_, "connect");
  if (has_no_peers(context, impl_->membership) || context.device().kind() != DeviceKind::cuda ||
      impl_->membership.library == nullptr || size() == 1) {
    return;
  }
  impl_->prepare(context.device(), true);
  for (const ProcessGroup& group : groups) {
    const bool in_one = group.defined() && group.size() > 1;
    const int color =
        in_one ? *std::min_element(group.world_ranks().begin(), group.world_ranks().end()) : -1;
    const auto part = impl_->membership.communicator->split(color, in_one ? group.rank() : 0,
                                                            in_one ? group.name() : std::string());
    if (in_one) group.impl_->membership.communicator = part;
  }
}

ProcessGroup make_world_group(std::shared_ptr<Endpoint> endpoint) {
  const CommunicatorLibraryKind* const kind = endpoint->options().library;
  return make_world_group(endpoint, kind == nullptr ? nullptr : kind->make(endpoint));
}

ProcessGroup make_world_group(std::shared_ptr<Endpoint> endpoint,
                              std::shared_ptr<CommunicatorLibrary> library) {
  auto impl = std::make_shared<ProcessGroup::Impl>();
  impl->membership.name = "world";
  impl->membership.rank = endpoint->rank();
  for (int r = 0; r < endpoint->size(); ++r) impl->membership.members.push_back(r);
  impl->membership.endpoint = std::move(endpoint);
  impl->membership.library = std::move(library);
  open(impl->membership);
  return ProcessGroup(std::move(impl));
}

void check_options(const TransportOptions& options) {
  const auto refuse = [](const std::string& problem) {
    throw RequestError("transport options: " + problem);
  };
  if (options.timeout.count() <= 0 || options.timeout > std::chrono::hours(24 * 365)) {
    refuse(fmt::format("timeout is {} ms; needs 1 ms to a year", options.timeout.count()));
  }
  if (options.ranks_per_node < 0) {
    refuse(fmt::format("ranks_per_node is {}; needs 0 (as found) or more", options.ranks_per_node));
  }
  if (options.injected_latency.count() < 0) {
    refuse(fmt::format("injected_latency is {} us; needs 0 or more",
                       options.injected_latency.count()));
  }
}

}  // namespace trident

#include "parallel/transport/mpi_endpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/process/process.h"
#include "parallel/transport/host_rendezvous.h"
#include "parallel/transport/mpi_parts.h"
#include "parallel/transport/mpi_reduction.h"
#include "parallel/transport/mpi_request.h"

namespace trident {
namespace {

constexpr std::uint64_t channel_slots = 32;
static_assert(channel_count <= static_cast<int>(channel_slots));

// The limit for opening communicators. MPI does that at once, but many ranks on few cores take a
// while.
std::chrono::milliseconds opening_limit(const TransportOptions& options) {
  return std::max(options.timeout, std::chrono::milliseconds(5000));
}

}  // namespace

MpiEndpoint::MpiEndpoint(const TransportOptions& options) : options_(options) {
  const auto limit = opening_limit(options);
  const auto job = make_linked_mpi_job();
  job->attach();
  job->agree(
      "", [](const auto&) { return ""; }, "to open the MPI transport", limit);
  // All ranks have come here. The calls below are short, but MPI waits in them without a limit.
  const Watchdog watchdog(
      limit,
      fmt::format("trident: {}: waited {} ms for all ranks to open the MPI transport; a rank that "
                  "had come is stopped, or can't be reached any more",
                  rank_text(job->rank(), host_name()), limit.count()),
      job_exit_code);
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &messages_), "MPI_Comm_dup");
  MPI_Comm control = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &control), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(messages_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(messages_, &rank_);
  MPI_Comm_size(messages_, &size_);
  void* highest = nullptr;
  int found = 0;
  MPI_Comm_get_attr(messages_, MPI_TAG_UB, &highest, &found);
  const int highest_tag = found != 0 ? *static_cast<int*>(highest) : 32767;
  group_slots_ = static_cast<std::uint64_t>(highest_tag) / channel_slots;
  std::vector<int> hosts;
  std::vector<std::string> names;
  find_hosts(hosts, names);
  control_ = std::make_unique<MpiControl>(control, names, options.timeout);
  try {
    nodes_ = nodes_of(std::move(hosts), options_.ranks_per_node, names);
  } catch (...) {
    fail(std::current_exception());  // the error is the same on all ranks: one of them reports it
  }
}

MpiEndpoint::~MpiEndpoint() {
  close();
}

// Ranks that MPI lets share memory are on one host.
void MpiEndpoint::find_hosts(std::vector<int>& hosts, std::vector<std::string>& names) {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(messages_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  int first = rank_;
  MPI_Bcast(&first, 1, MPI_INT, 0, host);
  share_memory(host);
  MPI_Comm_free(&host);
  const auto places = static_cast<std::size_t>(size_);
  hosts.resize(places);
  MPI_Allgather(&first, 1, MPI_INT, hosts.data(), 1, MPI_INT, messages_);
  using Name = std::array<char, MPI_MAX_PROCESSOR_NAME>;
  Name name{};
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  std::vector<Name> all(places);
  MPI_Allgather(name.data(), name.size(), MPI_CHAR, all.data(), name.size(), MPI_CHAR, messages_);
  for (const Name& one : all) names.emplace_back(one.data());
}

// The first rank of a host makes the shared memory; either all its ranks use it or none.
void MpiEndpoint::share_memory(MPI_Comm host) {
  int rank = 0, size = 1;
  MPI_Comm_rank(host, &rank);
  MPI_Comm_size(host, &size);
  spins_ = std::thread::hardware_concurrency() >=
           static_cast<unsigned>(size * options_.threads_per_rank);
  if (size == 1) return;
  HostMemory::Ticket ticket;
  if (rank == 0) {
    host_memory_ = HostMemory::make();
    if (host_memory_ != nullptr) ticket = host_memory_->ticket();
  }
  MPI_Bcast(&ticket, sizeof ticket, MPI_BYTE, 0, host);
  if (rank != 0 && ticket.descriptor >= 0) host_memory_ = HostMemory::open(ticket);
  int usable = host_memory_ != nullptr ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &usable, 1, MPI_INT, MPI_MIN, host);
  if (usable == 0) host_memory_ = nullptr;
  // Each rank tries to read a word of the next one's memory.
  struct Word {
    std::uint64_t process, address, value;
  };
  // No two ranks have the same word, though process ids may be equal where containers have their
  // own.
  std::random_device random;
  const std::uint64_t value =
      (std::uint64_t{random()} << 32 | random()) ^ static_cast<std::uint64_t>(rank);
  const Word own{static_cast<std::uint64_t>(::getpid()), reinterpret_cast<std::uintptr_t>(&value),
                 value};
  std::vector<Word> words(static_cast<std::size_t>(size));
  MPI_Allgather(&own, sizeof own, MPI_BYTE, words.data(), sizeof own, MPI_BYTE, host);
  const Word& next = words[static_cast<std::size_t>((rank + 1) % size)];
  int fetches =
      options_.single_copy && may_fetch(static_cast<int>(next.process), next.address, next.value)
          ? 1
          : 0;
  MPI_Allreduce(MPI_IN_PLACE, &fetches, 1, MPI_INT, MPI_MIN, host);  // the words stay until then
  fetches_ = fetches != 0 && host_memory_ != nullptr;
}

std::unique_ptr<SharedRendezvous> MpiEndpoint::open_rendezvous(std::uint64_t group,
                                                               const std::vector<int>& members) {
  constexpr std::size_t most_members = 1024;  // a slot is split into a part for each
  if (host_memory_ == nullptr || members.size() < 2 || members.size() > most_members ||
      std::any_of(members.begin(), members.end(),
                  [&](int member) { return nodes_->of(member) != nodes_->of(rank_); })) {
    return nullptr;
  }
  return make_host_rendezvous(host_memory_, group, members, rank_,
                              {.ended = [this](int peer) { return control_->ended(peer); },
                               .waits = &control_->waits(),
                               .spins = spins_,
                               .fetches = fetches_});
}

void MpiEndpoint::close() {
  if (closed_.load()) return;
  control_->close();
  closed_.store(true);
  for (auto& [group, members] : reductions_) MPI_Comm_free(&members);
  MPI_Comm_free(&messages_);
}

int MpiEndpoint::tag_of(std::uint64_t group, int channel) const {
  return static_cast<int>(group % group_slots_ * channel_slots +
                          static_cast<std::uint64_t>(channel));
}

void MpiEndpoint::open_group(std::uint64_t id, const std::string& name) {
  const std::lock_guard lock(groups_mutex_);
  const auto [place, added] = groups_.try_emplace(tag_of(id, 0), id, name);
  if (!added && place->second.first != id) {
    throw Error(fmt::format(
        "mpi: process groups '{}' and '{}' share one message tag; give one of them another name",
        place->second.second, name));
  }
}

std::unique_ptr<Request> MpiEndpoint::post_send(int peer, int channel, const Descriptor& descriptor,
                                                const void* data, std::size_t bytes,
                                                std::shared_ptr<QueueSide>) {
  return std::make_unique<MpiRequest>(*this, MpiRequest::Kind::send, peer,
                                      tag_of(descriptor.group, channel), descriptor,
                                      const_cast<void*>(data), bytes);  // only read
}

std::unique_ptr<Request> MpiEndpoint::post_receive(int peer, int channel,
                                                   const Descriptor& expected, void* data,
                                                   std::size_t bytes, std::shared_ptr<QueueSide>) {
  return std::make_unique<MpiRequest>(*this, MpiRequest::Kind::receive, peer,
                                      tag_of(expected.group, channel), expected, data, bytes);
}

bool MpiEndpoint::reduces(DType dtype, ReduceOp op) const {
  return mpi_reduces(dtype, op);
}

void MpiEndpoint::open_reductions(std::uint64_t group, const std::vector<int>& members) {
  MPI_Comm made = make_reduction_communicator(messages_, members, tag_of(group, collective_channel),
                                              opening_limit(options_));
  const std::lock_guard lock(groups_mutex_);
  reductions_[group] = made;
}

std::unique_ptr<Request> MpiEndpoint::post_all_reduce(std::uint64_t group, int peer, void* data,
                                                      std::int64_t n, DType dtype, ReduceOp op) {
  MPI_Comm members = MPI_COMM_NULL;
  {
    const std::lock_guard lock(groups_mutex_);
    members = reductions_.at(group);
  }
  return std::make_unique<MpiReduction>(*this, members, peer, data, n, dtype, op);
}

void MpiEndpoint::fail(std::exception_ptr error) noexcept {
  control_->end_job(message_of(error), exit_code_of(error));
}

void MpiEndpoint::abort(const std::string& reason) noexcept {
  control_->end_job(reason, job_exit_code);
}

}  // namespace trident

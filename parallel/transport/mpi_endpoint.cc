#include "parallel/transport/mpi_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/process.h"
#include "parallel/transport/mpi_request.h"

namespace trident {
namespace {

constexpr int job_exit_code = 3;
constexpr std::uint64_t channel_slots = 32;
static_assert(channel_count <= static_cast<int>(channel_slots));

}  // namespace

MpiEndpoint::MpiEndpoint(const TransportOptions& options) : options_(options) {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &messages_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(messages_, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(messages_, &rank_);
  MPI_Comm_size(messages_, &size_);
  ended_ = std::vector<std::atomic<bool>>(static_cast<std::size_t>(size_));
  void* highest = nullptr;
  int found = 0;
  MPI_Comm_get_attr(messages_, MPI_TAG_UB, &highest, &found);
  const int highest_tag = found != 0 ? *static_cast<int*>(highest) : 32767;
  group_slots_ = static_cast<std::uint64_t>(highest_tag) / channel_slots;
  find_nodes();
}

MpiEndpoint::~MpiEndpoint() {
  close();
}

// Ranks that MPI lets share memory share a host.
void MpiEndpoint::find_nodes() {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(messages_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  int first = rank_;
  MPI_Bcast(&first, 1, MPI_INT, 0, host);
  MPI_Comm_free(&host);
  const auto places = static_cast<std::size_t>(size_);
  std::vector<int> hosts(places);
  MPI_Allgather(&first, 1, MPI_INT, hosts.data(), 1, MPI_INT, messages_);
  using Name = std::array<char, MPI_MAX_PROCESSOR_NAME>;
  Name name{};
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  std::vector<Name> all(places);
  MPI_Allgather(name.data(), name.size(), MPI_CHAR, all.data(), name.size(), MPI_CHAR, messages_);
  std::vector<std::string> names;
  for (const Name& one : all) names.emplace_back(one.data());
  nodes_ = nodes_of(std::move(hosts), options_.ranks_per_node, names);
}

void MpiEndpoint::close() {
  if (closed_.load()) return;
  {
    const std::lock_guard lock(poll_mutex_);
    stop_ = true;
  }
  poll_wake_.notify_all();
  if (poller_.joinable()) poller_.join();

  // Each rank tells every other, so that one that still waits for it can say why it fails.
  std::vector<MPI_Request> farewells(static_cast<std::size_t>(size_), MPI_REQUEST_NULL);
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) {
      MPI_Isend(nullptr, 0, MPI_BYTE, r, 0, control_, &farewells[static_cast<std::size_t>(r)]);
    }
  }
  BackOff back_off;
  for (int r = 0; r < size_; ++r) {
    while (r != rank_ && !ended(r)) back_off.pause();
  }
  MPI_Waitall(size_, farewells.data(), MPI_STATUSES_IGNORE);
  closed_.store(true);
  MPI_Comm_free(&messages_);
  MPI_Comm_free(&control_);
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
        "mpi: process groups '{}' and '{}' fall on one message tag; give one another name",
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

void MpiEndpoint::fail(std::exception_ptr error) noexcept {
  end_job(message_of(error), exit_code_of(error));
}

void MpiEndpoint::abort(const std::string& reason) noexcept {
  end_job(reason, job_exit_code);
}

void MpiEndpoint::end_job(const std::string& reason, int exit_code) noexcept {
  if (aborting_.test_and_set()) {  // another thread of this rank is at it
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  print_error("trident: " + rank_text(rank_, host_name()) + ": " + reason);
  abort_job(exit_code);
}

bool MpiEndpoint::ended(int peer) {
  const auto index = static_cast<std::size_t>(peer);
  if (!ended_[index].load()) read_control();
  return ended_[index].load();
}

void MpiEndpoint::read_control() {
  const std::lock_guard lock(control_mutex_);
  for (;;) {
    int found = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, 0, control_, &found, &status), "MPI_Iprobe");
    if (found == 0) return;
    check_mpi(MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, 0, control_, MPI_STATUS_IGNORE),
              "MPI_Recv");
    ended_[static_cast<std::size_t>(status.MPI_SOURCE)].store(true);
  }
}

void MpiEndpoint::watch() {
  if (watched_.fetch_add(1) > 0) return;
  {
    const std::lock_guard lock(poll_mutex_);
    if (!poller_.joinable()) poller_ = std::thread([this] { poll(); });
  }
  poll_wake_.notify_one();
}

void MpiEndpoint::poll() {
  std::unique_lock lock(poll_mutex_);
  while (!stop_) {
    poll_wake_.wait(lock, [this] { return stop_ || watched_.load() > 0; });
    lock.unlock();
    BackOff back_off;
    while (watched_.load() > 0) {
      try {
        read_control();  // any call makes progress for all messages
      } catch (...) {
        fail(std::current_exception());
      }
      back_off.pause();
      if (const std::lock_guard again(poll_mutex_); stop_) break;
    }
    lock.lock();
  }
}

}  // namespace trident

#include "parallel/transport/mpi_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/process/process.h"
#include "core/countdown.h"
#include "parallel/transport/mpi_library.h"
#include "parallel/transport/mpi_parts.h"

namespace trident {
namespace {

using std::chrono::milliseconds;

constexpr int report_tag = 1, here_tag = 2, decision_tag = 3;
constexpr std::chrono::seconds finish_limit{10};

std::string seconds_text(milliseconds limit) {
  return fmt::format("{:g} s", static_cast<double>(limit.count()) / 1000);
}

// All ranks may find at once that a process is missing. They report in turn, and the first one ends
// the others.
milliseconds turn_of(int rank) {
  return milliseconds(250) * std::min(rank, 8);
}

// A message on its way; MPI reads `bytes` until it is done.
struct Outgoing {
  Outgoing(std::string b, int peer, int tag) : bytes(std::move(b)) {
    check_mpi(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, peer, tag,
                        MPI_COMM_WORLD, &request),
              "MPI_Isend");
  }
  bool done() {
    int flag = 0;
    check_mpi(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    return flag != 0;
  }
  std::string bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

// Takes a message of this tag from `peer`, if one has arrived.
bool take(int peer, int tag, std::string& bytes) {
  int found = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(peer, tag, MPI_COMM_WORLD, &found, &status), "MPI_Iprobe");
  if (found == 0) return false;
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  bytes.resize(static_cast<std::size_t>(count));
  check_mpi(MPI_Recv(bytes.data(), count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
            "MPI_Recv");
  return true;
}

// Waits until ready() or the limit; false at the limit.
template <class Ready>
bool wait_for(milliseconds limit, Ready ready) {
  Countdown countdown(limit);
  BackOff back_off;
  while (!ready()) {
    if (countdown.over()) return false;
    back_off.pause();
  }
  return true;
}

// "Open MPI v4.1.4".
std::string library_name() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string name = text.data();
  return name.substr(0, name.find_first_of(",\n"));
}

class Job final : public MpiJob {
 public:
  void begin(int rank, int ranks, milliseconds limit) override;
  void attach() override;
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hosts_.size()); }
  const std::string& host(int rank) const override {
    return hosts_[static_cast<std::size_t>(rank)];
  }
  std::string agree(const std::string& own,
                    const std::function<std::string(const std::vector<std::string>&)>& answer,
                    const std::string& what, milliseconds limit) const override;
  [[noreturn]] void abort(const std::string& line, int exit_code) const noexcept override;
  void finish(int exit_code) override;

 private:
  [[noreturn]] void give_up(const std::string& what, const std::string& missing,
                            milliseconds limit) const;

  bool begun_ = false, owner_ = false;
  int rank_ = 0;
  std::vector<std::string> hosts_;  // by rank
};

void Job::begin(int rank, int ranks, milliseconds limit) {
  if (begun_) return;
  {
    const Watchdog watchdog(
        limit + turn_of(rank),
        fmt::format("trident: {}: waited {} for all processes of the job to start MPI; one has "
                    "not started it, or can't be reached",
                    rank_text(rank, host_name()), seconds_text(limit)),
        job_exit_code);
    owner_ = initialise_mpi();
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (ranks > 0 && size != ranks) {
      abort(fmt::format("trident: {}: {} processes have been started, but this process's MPI "
                        "({}) finds {}; start them with the mpirun of that MPI",
                        rank_text(rank, host_name()), ranks, library_name(), size),
            2);
    }
    using Name = std::array<char, 256>;
    Name own{};
    host_name().copy(own.data(), own.size() - 1);
    std::vector<Name> names(static_cast<std::size_t>(size));
    check_mpi(MPI_Allgather(own.data(), own.size(), MPI_CHAR, names.data(), own.size(), MPI_CHAR,
                            MPI_COMM_WORLD),
              "MPI_Allgather");
    for (const Name& name : names) hosts_.emplace_back(name.data());
  }
  begun_ = true;
}

void Job::attach() {
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  hosts_.resize(static_cast<std::size_t>(size));
  hosts_[static_cast<std::size_t>(rank_)] = host_name();
  begun_ = true;
}

std::string Job::agree(const std::string& own,
                       const std::function<std::string(const std::vector<std::string>&)>& answer,
                       const std::string& what, milliseconds limit) const {
  const auto places = static_cast<std::size_t>(size());
  if (rank_ == 0) {
    std::vector<std::string> all(places);
    std::vector<bool> here(places);
    all[0] = own;
    here[0] = true;
    std::vector<std::unique_ptr<Outgoing>> sent;
    for (int r = 1; r < size(); ++r) sent.push_back(std::make_unique<Outgoing>("", r, here_tag));
    const bool complete = wait_for(limit, [&] {
      for (std::size_t r = 0; r < places; ++r) {
        if (!here[r]) here[r] = take(static_cast<int>(r), report_tag, all[r]);
      }
      return std::find(here.begin(), here.end(), false) == here.end();
    });
    if (!complete) {
      std::string missing;
      for (std::size_t r = 0; r < places; ++r) {
        if (!here[r])
          missing += (missing.empty() ? "" : ", ") + rank_text(static_cast<int>(r), hosts_[r]);
      }
      give_up(what, missing, limit);
    }
    const std::string decided = answer(all);
    for (int r = 1; r < size(); ++r)
      sent.push_back(std::make_unique<Outgoing>(decided, r, decision_tag));
    const auto all_sent = [&] {
      return std::all_of(sent.begin(), sent.end(), [](const auto& one) { return one->done(); });
    };
    if (!wait_for(limit, all_sent)) give_up(what, "the others to take the answer", limit);
    return decided;
  }
  Outgoing report(own, 0, report_tag);
  std::string bytes;
  // Rank 0 reports that it is here, and from then on waits for the others itself.
  const bool answered =
      wait_for(limit + turn_of(rank_), [&] { return take(0, here_tag, bytes); }) &&
      wait_for(2 * limit + turn_of(rank_),
               [&] { return report.done() && take(0, decision_tag, bytes); });
  if (!answered) give_up(what, rank_text(0, hosts_[0]), limit);
  return bytes;
}

void Job::give_up(const std::string& what, const std::string& missing, milliseconds limit) const {
  abort(fmt::format("trident: {}: waited {} for {} {}", rank_text(rank_, host(rank_)),
                    seconds_text(limit), missing, what),
        job_exit_code);
}

void Job::abort(const std::string& line, int exit_code) const noexcept {
  print_error(line);
  abort_job(exit_code);
}

void Job::finish(int exit_code) {
  if (!begun_ || !owner_) return;
  std::fflush(stdout);
  const Watchdog watchdog(finish_limit, "", exit_code);
  MPI_Finalize();
  begun_ = false;
}

}  // namespace

std::unique_ptr<MpiJob> make_linked_mpi_job() {
  return std::make_unique<Job>();
}

}  // namespace trident

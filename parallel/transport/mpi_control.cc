#include "parallel/transport/mpi_control.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"
#include "base/process/process.h"
#include "parallel/transport/endpoint.h"

namespace trident {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

enum Tag { farewell_tag, heartbeat_tag, abort_tag, ask_tag, answer_tag };

// A rank that is alive may be kept from its core for a while, whatever the timeout is.
constexpr milliseconds least_silence{2000};
constexpr milliseconds longest_period{250};
// A rank that is alive answers within a period.
constexpr milliseconds answer_limit{800};
// A rank that fails listens this long for other ranks that fail at the same time: only one reports.
constexpr milliseconds listening{200};
// mpirun ends the ranks that it can reach within this time.
constexpr std::chrono::seconds end_of_others{2};

}  // namespace

MpiControl::MpiControl(MPI_Comm communicator, std::vector<std::string> hosts, milliseconds timeout)
    : communicator_(communicator),
      hosts_(std::move(hosts)),
      silence_(std::max(timeout, least_silence)),
      period_(std::min(silence_ / 20, longest_period)),
      timeout_(timeout) {
  MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(communicator_, &rank_);
  MPI_Comm_size(communicator_, &size_);
  ended_ = std::vector<std::atomic<bool>>(static_cast<std::size_t>(size_));
  asked_.resize(static_cast<std::size_t>(size_));
  aborted_by_ = size_;
  if (size_ > 1) neighbours_.push_back({(rank_ + 1) % size_, Countdown(silence_)});
  if (size_ > 2) neighbours_.push_back({(rank_ + size_ - 1) % size_, Countdown(silence_)});
  thread_ = std::thread([this] { run(); });
}

std::string MpiControl::place(int rank) const {
  return rank_text(rank, hosts_[static_cast<std::size_t>(rank)]);
}

bool MpiControl::ended(int peer) {
  const auto index = static_cast<std::size_t>(peer);
  if (!ended_[index].load()) listen();
  return ended_[index].load();
}

void MpiControl::watch() {
  if (watched_.fetch_add(1) > 0) return;
  const std::lock_guard lock(mutex_);
  wake_.notify_one();
}

void MpiControl::run() {
  BackOff back_off;
  Clock::time_point next_beat = Clock::now();
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    try {
      listen();  // any call makes progress for all messages
      if (Clock::now() >= next_beat) {
        beat();
        next_beat = Clock::now() + period_;
      }
    } catch (...) {
      end_job(message_of(std::current_exception()), exit_code_of(std::current_exception()));
    }
    if (watched_.load() > 0) {
      back_off.pause();
      lock.lock();
    } else {
      lock.lock();
      wake_.wait_until(lock, next_beat, [this] { return stop_ || watched_.load() > 0; });
      back_off = BackOff();
    }
  }
}

// Sends a heartbeat to each neighbour and checks that it isn't silent. Where a neighbour receives
// nothing any more, one heartbeat stays in flight.
void MpiControl::beat() {
  for (Neighbour& one : neighbours_) {
    int done = 0;
    check_mpi(MPI_Test(&one.beat, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) {
      check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, one.rank, heartbeat_tag, communicator_, &one.beat),
                "MPI_Isend");
    }
    const std::lock_guard lock(reading_);
    if (one.silence.over() && !ended_[static_cast<std::size_t>(one.rank)].load()) {
      throw CommunicationError(
          fmt::format("{} has not been heard of for {} ms: it is stopped or dead, or its host "
                      "can't be reached",
                      place(one.rank), silence_.count()));
    }
  }
}

// Reads the messages that have arrived, and ends this process where another rank has failed.
void MpiControl::listen() {
  read();
  if (aborted_by_.load() < size_ && !ending_.test_and_set()) end_quietly(abort_code_.load());
}

void MpiControl::read() {
  const std::lock_guard lock(reading_);
  for (;;) {
    int found = 0, number = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &found, &status),
              "MPI_Iprobe");
    if (found == 0) return;
    const int from = status.MPI_SOURCE, tag = status.MPI_TAG;
    const bool has_number = tag == abort_tag || tag == answer_tag;
    check_mpi(
        MPI_Recv(&number, has_number ? 1 : 0, MPI_INT, from, tag, communicator_, MPI_STATUS_IGNORE),
        "MPI_Recv");
    Asked& asked = asked_[static_cast<std::size_t>(from)];
    if (tag == answer_tag) {
      asked.got = number;
      asked.has_come = true;
    }
    if (tag == ask_tag) {
      int done = 0;
      check_mpi(MPI_Test(&asked.on_its_way, &done, MPI_STATUS_IGNORE), "MPI_Test");
      asked.given = own_answer();
      if (done != 0) {
        check_mpi(
            MPI_Isend(&asked.given, 1, MPI_INT, from, answer_tag, communicator_, &asked.on_its_way),
            "MPI_Isend");
      }
    }
    if (tag == farewell_tag) ended_[static_cast<std::size_t>(from)].store(true);
    if (tag == abort_tag && from < aborted_by_.load()) {
      abort_code_ = number;
      aborted_by_ = from;
    }
    for (Neighbour& one : neighbours_) {
      if (one.rank == from) one.silence.restart();
    }
  }
}

int MpiControl::own_answer() const {
  return file_times_.hold_up(timeout_) ? works_on_files : waits_.rank();
}

// Where the rank receives nothing any more, the message stays in flight until this process ends.
void MpiControl::send_question(int rank) {
  {
    const std::lock_guard lock(reading_);
    asked_[static_cast<std::size_t>(rank)].has_come = false;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, rank, ask_tag, communicator_, &request), "MPI_Isend");
  check_mpi(MPI_Request_free(&request), "MPI_Request_free");
}

bool MpiControl::has_come(int rank, int& answer) {
  const std::lock_guard lock(reading_);
  const Asked& asked = asked_[static_cast<std::size_t>(rank)];
  if (asked.has_come) answer = asked.got;
  return asked.has_come;
}

int MpiControl::ask(int rank) {
  if (rank == rank_) return own_answer();
  const std::lock_guard one_asks(asking_);
  send_question(rank);
  for (Countdown countdown(answer_limit); !countdown.over();) {
    listen();
    int answer = no_rank;
    if (has_come(rank, answer)) return answer;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return no_answer;
}

bool MpiControl::files_hold_up() {
  if (own_answer() == works_on_files) return true;
  const std::lock_guard one_asks(asking_);
  std::vector<int> open;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || ended_[static_cast<std::size_t>(r)].load()) continue;
    send_question(r);
    open.push_back(r);
  }
  for (Countdown countdown(answer_limit); !open.empty() && !countdown.over();) {
    listen();
    bool found = false;
    std::erase_if(open, [&](int r) {
      int answer = no_rank;
      const bool come = has_come(r, answer);
      found = found || (come && answer == works_on_files);
      return come;
    });
    if (found) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

std::string MpiControl::waits_of(int rank) {
  return text_of_waits(rank, [&](int at) { return ask(at); });
}

void MpiControl::end_quietly(int exit_code) noexcept {
  std::this_thread::sleep_for(end_of_others);
  ::_exit(exit_code);
}

void MpiControl::end_job(const std::string& reason, int exit_code) noexcept {
  if (ending_.test_and_set()) {  // another thread of this rank is ending the job
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  try {
    read();
    if (aborted_by_.load() < size_) end_quietly(abort_code_.load());
    std::vector<MPI_Request> requests(static_cast<std::size_t>(size_), MPI_REQUEST_NULL);
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      MPI_Isend(&exit_code, 1, MPI_INT, r, abort_tag, communicator_,
                &requests[static_cast<std::size_t>(r)]);
    }
    Countdown countdown(listening);
    while (size_ > 1 && !countdown.over()) {
      read();
      std::this_thread::sleep_for(milliseconds(1));
    }
  } catch (const std::exception&) {
    // MPI has failed, too.
  }
  // Where a lower rank has failed, too, that rank reports its error and then ends the job. Its
  // report may come late.
  if (aborted_by_.load() < rank_) end_quietly(abort_code_.load());
  print_error("trident: " + place(rank_) + ": " + printable_lines(reason));
  abort_job(exit_code);
}

void MpiControl::close() {
  std::vector<MPI_Request> farewells;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    farewells.push_back(MPI_REQUEST_NULL);
    MPI_Isend(nullptr, 0, MPI_BYTE, r, farewell_tag, communicator_, &farewells.back());
  }
  BackOff back_off;
  for (int r = 0; r < size_; ++r) {
    while (r != rank_ && !ended(r)) back_off.pause();
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  // All ranks have come here, and none sends anything afterwards.
  farewells.push_back(MPI_REQUEST_NULL);
  MPI_Ibarrier(communicator_, &farewells.back());
  for (const Neighbour& one : neighbours_) farewells.push_back(one.beat);
  Countdown countdown(silence_);
  for (int done = 0; done == 0;) {
    listen();
    MPI_Testall(static_cast<int>(farewells.size()), farewells.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) break;
    back_off.pause();
    if (countdown.over()) {
      end_job(fmt::format("the ranks did not end together within {} ms", silence_.count()), 3);
    }
  }
  listen();
  MPI_Comm_free(&communicator_);
}

}  // namespace trident

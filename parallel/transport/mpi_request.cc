#include "parallel/transport/mpi_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace trident {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t small_bytes = 4096;
// Each part that has arrived is progress. Its size is below MPI's eager limit over TCP, so MPI
// sends it without asking the receiver first.
constexpr std::size_t part_bytes = std::size_t{60} << 10;
// A peer's farewell may overtake its last messages.
constexpr std::chrono::milliseconds farewell_grace{500};

}  // namespace

MpiRequest::MpiRequest(MpiEndpoint& endpoint, Kind kind, int peer, int tag,
                       const Descriptor& descriptor, void* data, std::size_t bytes)
    : endpoint_(endpoint),
      kind_(kind),
      peer_(peer),
      tag_(tag),
      descriptor_(descriptor),
      data_(static_cast<std::byte*>(data)),
      bytes_(bytes),
      // Collectives are waited for at once; messages may be left alone for long.
      watched_(descriptor.operation == Operation::message) {
  if (kind == Kind::send) {
    start_send();
  } else {
    start_receive();
  }
  if (watched_) endpoint_.watch();
}

MpiRequest::~MpiRequest() {
  if (!complete_ && !endpoint_.closed()) {
    if (kind_ == Kind::send) {
      try {
        Countdown countdown = endpoint_.countdown();
        if (wait(countdown) != Outcome::complete) {
          endpoint_.abort("a message to rank " + std::to_string(peer_) + " was never received");
        }
      } catch (...) {
        endpoint_.fail(std::current_exception());
      }
    } else {
      cancel();
    }
  }
  if (watched_ && !complete_) endpoint_.unwatch();
}

void MpiRequest::start_send() {
  const bool small = bytes_ <= small_bytes;
  envelope_ = {descriptor_, bytes_, Clock::now().time_since_epoch() / std::chrono::nanoseconds(1)};
  first_.resize(sizeof(Envelope) + (small ? bytes_ : 0));
  std::memcpy(first_.data(), &envelope_, sizeof(Envelope));
  if (small && bytes_ > 0) std::memcpy(first_.data() + sizeof(Envelope), data_, bytes_);
  requests_.push_back(MPI_REQUEST_NULL);
  check_mpi(MPI_Isend(first_.data(), static_cast<int>(first_.size()), MPI_BYTE, peer_, tag_,
                      endpoint_.communicator(), &requests_.back()),
            "MPI_Isend");
  for (std::size_t at = 0; !small && at < bytes_; at += part_bytes) {
    // The last part is complete once the receiver has posted its receive, so a message that is
    // never received is never complete.
    const auto send = bytes_ - at <= part_bytes ? MPI_Issend : MPI_Isend;
    requests_.push_back(MPI_REQUEST_NULL);
    check_mpi(send(data_ + at, static_cast<int>(std::min(part_bytes, bytes_ - at)), MPI_BYTE, peer_,
                   tag_, endpoint_.communicator(), &requests_.back()),
              "MPI_Isend");
  }
}

// The payload's receives are posted together with the envelope's. A wrong message can't write
// beyond the payload, and ends the job before anything reads it.
void MpiRequest::start_receive() {
  const bool small = bytes_ <= small_bytes;
  first_.resize(sizeof(Envelope) + small_bytes);
  requests_.push_back(MPI_REQUEST_NULL);
  check_mpi(MPI_Irecv(first_.data(), static_cast<int>(first_.size()), MPI_BYTE, peer_, tag_,
                      endpoint_.communicator(), &requests_.back()),
            "MPI_Irecv");
  for (std::size_t at = 0; !small && at < bytes_; at += part_bytes) {
    requests_.push_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Irecv(data_ + at, static_cast<int>(std::min(part_bytes, bytes_ - at)), MPI_BYTE,
                        peer_, tag_, endpoint_.communicator(), &requests_.back()),
              "MPI_Irecv");
  }
}

// True when the message matches this rank's descriptor and size.
bool MpiRequest::read_envelope() {
  std::memcpy(&envelope_, first_.data(), sizeof(Envelope));
  if (envelope_.descriptor != descriptor_ || envelope_.bytes != bytes_) return false;
  if (bytes_ > 0 && bytes_ <= small_bytes) {
    std::memcpy(data_, first_.data() + sizeof(Envelope), bytes_);
  }
  return true;
}

bool MpiRequest::advance() {
  if (complete_) return true;
  for (std::size_t i = done_.load(); i < requests_.size() && !mismatch_; ++i) {
    int done = 0;
    const int code = MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
    check_mpi(code, kind_ == Kind::send ? "MPI_Isend" : "MPI_Irecv");
    if (done == 0) return false;
    done_.fetch_add(1);
    if (i == 0 && kind_ == Kind::receive) mismatch_ = !read_envelope();
  }
  if (kind_ == Kind::receive && !mismatch_ && watched_) {
    const auto deliver_at = Clock::time_point(std::chrono::nanoseconds(envelope_.sent_at)) +
                            endpoint_.options().injected_latency;
    if (deliver_at > Clock::now()) return false;
  }
  complete_ = true;
  if (watched_) endpoint_.unwatch();
  return true;
}

bool MpiRequest::test() {
  const std::lock_guard lock(mutex_);
  return advance();
}

// An envelope or a part that has arrived, or has been sent, is progress, and restarts the
// countdown.
Outcome MpiRequest::wait(Countdown& countdown) {
  BackOff back_off(endpoint_.spins());
  std::optional<Countdown> grace;  // once the peer has ended
  std::optional<WaitTable::Entry> entry;
  int looks = 0;
  for (std::size_t seen = done_.load();;) {
    if (test()) return mismatch_ ? Outcome::mismatch : Outcome::complete;
    if (const std::size_t now = done_.load(); now != seen) {
      seen = now;
      countdown.restart();
      grace.reset();
      back_off.restart();
    }
    if (countdown.over()) return Outcome::late;
    if (++looks == polls_before_entry) entry.emplace(endpoint_.waits(), [this] { return peer_; });
    if (grace && grace->over()) return Outcome::peer_ended;
    if (!grace && endpoint_.ended(peer_)) grace.emplace(farewell_grace);
    back_off.pause();
  }
}

// A message that is on its way already comes to its end, unless the peer is stopped or out of
// reach.
void MpiRequest::cancel() noexcept {
  for (MPI_Request& request : requests_) {
    if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
  }
  Countdown countdown = endpoint_.countdown();
  BackOff back_off;
  for (int done = 0;; back_off.pause()) {
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) return;
    if (countdown.over()) {
      endpoint_.abort(
          fmt::format("a message from rank {} has begun to arrive and did not end within "
                      "{} ms",
                      peer_, endpoint_.options().timeout.count()));
    }
  }
}

}  // namespace trident

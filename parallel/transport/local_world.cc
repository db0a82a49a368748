#include "parallel/transport/local_world.h"

#include <algorithm>
#include <thread>

#include "base/error.h"

namespace trident::local {
namespace {

bool is_aborted_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const AbortedError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

World::World(int ranks, const TransportOptions& options)
    : options_(options),
      spins_(std::thread::hardware_concurrency() >=
             static_cast<unsigned>(ranks * options.threads_per_rank)),
      ended_(static_cast<std::size_t>(ranks)),
      waits_(static_cast<std::size_t>(ranks)),
      file_times_(static_cast<std::size_t>(ranks)),
      thrown_(static_cast<std::size_t>(ranks)) {
  for (int r = 0; r < ranks; ++r) mailboxes_.push_back(std::make_unique<Mailbox>());
}

bool World::files_hold_up() const {
  return std::any_of(file_times_.begin(), file_times_.end(),
                     [this](const FileTimes& times) { return times.hold_up(options_.timeout); });
}

void World::throw_aborted(int rank) const {
  const std::lock_guard lock(mutex_);
  throw AbortedError("rank " + std::to_string(rank) + " was stopped by rank " +
                     std::to_string(culprit_) + ": " + reason_);
}

void World::abort(int rank, const std::string& reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (aborted()) return;
    culprit_ = rank;
    reason_ = reason;
    aborted_.store(true);
  }
  wake_all();
}

void World::fail(int rank, const std::exception_ptr& error) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const bool derived = is_aborted_error(error);
    // A rank that called abort() may throw its reason only later, when it has unwound.
    if (!derived && first_ == nullptr && (culprit_ == -1 || culprit_ == rank)) first_ = error;
    if (aborted()) return;
    culprit_ = rank;
    reason_ = message_of(error);
    aborted_.store(true);
  }
  wake_all();
}

void World::end(int rank, const std::exception_ptr& error) noexcept {
  if (error != nullptr) {
    fail(rank, error);
    const std::lock_guard lock(mutex_);
    thrown_[static_cast<std::size_t>(rank)] = error;
  }
  ended_[static_cast<std::size_t>(rank)].store(true);
  wake_all();
}

std::exception_ptr World::first_error() const {
  const std::lock_guard lock(mutex_);
  std::exception_ptr any, own;
  for (const auto& error : thrown_) {
    if (error == nullptr) continue;
    if (any == nullptr) any = error;
    if (own == nullptr && !is_aborted_error(error)) own = error;
  }
  if (any == nullptr) return nullptr;
  if (first_ != nullptr) return first_;
  return own != nullptr ? own : any;
}

void World::wake_all() noexcept {
  for (const auto& mailbox : mailboxes_) {
    const std::lock_guard lock(mailbox->mutex);
    for (auto* sleeper : mailbox->sleepers) sleeper->notify_all();
  }
  const std::lock_guard lock(boards_mutex_);
  for (const auto& [group, weak] : boards_) {
    if (const auto board = weak.lock()) wake(*board);
  }
}

}  // namespace trident::local

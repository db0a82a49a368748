// The rendezvous of rank threads. Members number their rendezvous. A seat shows the buffers of its
// member's last two, which is enough because no member can be further ahead than that.
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "core/core_contention.h"
#include "parallel/transport/local_world.h"

namespace trident::local {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t slot_size = 16384;

}  // namespace

struct Shown {
  Descriptor descriptor;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

struct alignas(64) Seat {
  std::atomic<std::uint64_t> arrived{0};   // number of the member's last rendezvous
  std::atomic<std::uint64_t> touching{0};  // the rendezvous whose buffers it may touch; 0: none
  std::atomic<std::uint64_t> finished{0};  // the last rendezvous it has finished
  Shown shown[2];
  std::unique_ptr<std::byte[]> slots = std::make_unique<std::byte[]>(2 * slot_size);
};

class Board {
 public:
  explicit Board(std::size_t members) : seats(members) {}
  std::vector<Seat> seats;

  // Returns when ready(), which another thread makes true before it calls notify(), or when the
  // countdown is over. The member spins for `look` and then sleeps; it keeps the result of asleep()
  // while it sleeps.
  template <class Ready, class Asleep>
  void wait_until(std::chrono::microseconds look, Countdown countdown, Ready ready, Asleep asleep) {
    if (ready()) return;
    if (look.count() > 0) {
      const auto end = Clock::now() + look;
      do {
        for (int i = 0; i < 64; ++i) {
          if (ready()) return;
          _mm_pause();
        }
      } while (Clock::now() < end);
    }
    [[maybe_unused]] const auto sleep = asleep();
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    while (!ready() && !countdown.over()) changed_.wait_until(lock, countdown.next_look());
    sleepers_.fetch_sub(1);
  }
  void notify() {
    if (sleepers_.load() == 0) return;
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  void notify_always() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
};

void wake(Board& board) noexcept {
  board.notify_always();
}

std::shared_ptr<Board> World::board(std::uint64_t group, std::size_t members) {
  const std::lock_guard lock(boards_mutex_);
  auto& known = boards_[group];
  std::shared_ptr<Board> board = known.lock();
  if (board == nullptr) known = board = std::make_shared<Board>(members);
  return board;
}

namespace {

class LocalRendezvous final : public SharedRendezvous {
 public:
  LocalRendezvous(std::shared_ptr<World> world, std::uint64_t group, std::vector<int> members,
                  int rank)
      : world_(std::move(world)),
        board_(world_->board(group, members.size())),
        members_(std::move(members)),
        rank_(rank),
        self_(static_cast<std::size_t>(std::find(members_.begin(), members_.end(), rank) -
                                       members_.begin())) {}

  Sharing sharing() const override { return Sharing::tensors; }
  std::size_t slot_bytes() const override { return slot_size; }
  std::byte* slot() override { return own().slots.get() + (number_ + 1) % 2 * slot_size; }

  Result arrive(const Descriptor& descriptor, const void* input, void* output,
                std::chrono::microseconds look, Countdown countdown) override {
    ++number_;
    own().shown[number_ % 2] = {descriptor, static_cast<const std::byte*>(input),
                                static_cast<std::byte*>(output)};
    own().arrived.store(number_);
    board_->notify();
    const auto here = [&](std::size_t i) { return board_->seats[i].arrived.load() >= number_; };
    const auto ended = [&](std::size_t i) { return world_->ended(members_[i]) && !here(i); };
    const auto over = [&] {  // all are here, or one never will be
      bool all = true;
      for (std::size_t i = 0; i < members_.size(); ++i) {
        if (here(i)) continue;
        all = false;
        if (ended(i)) return true;
      }
      return all || world_->aborted();
    };
    const auto missing = [&] {
      for (std::size_t i = 0; i < members_.size(); ++i) {
        if (!here(i)) return members_[i];
      }
      return no_rank;
    };
    board_->wait_until(keeps_core() ? look : none, countdown, over,
                       [&] { return WaitTable::Entry(world_->waits(rank_), missing); });
    Result result;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (ended(i)) result.members.push_back(static_cast<int>(i));
    }
    if (!result.members.empty()) {
      result.outcome = Outcome::peer_ended;
    } else {
      for (std::size_t i = 0; i < members_.size(); ++i) {
        if (!here(i)) result.members.push_back(static_cast<int>(i));
      }
      if (!result.members.empty()) result.outcome = Outcome::late;
    }
    // From here on the others' buffers stay. A member that leaves because of an abort has either
    // set the abort flag before this member reads it, or sees this mark and waits.
    own().touching.store(number_);
    if (world_->aborted()) {
      finish();
      abandon();
      world_->throw_aborted(rank_);
    }
    for (int i = 0; result.members.empty() && i < static_cast<int>(members_.size()); ++i) {
      if (this->descriptor(i) == descriptor) continue;
      result.outcome = Outcome::mismatch;
      result.members.push_back(i);
    }
    if (result.outcome != Outcome::complete) finish();
    return result;
  }

  const Descriptor& descriptor(int member) const override { return shown(member).descriptor; }
  const std::byte* input(int member) const override { return shown(member).input; }
  std::byte* output(int member) const override { return shown(member).output; }

  void finish() noexcept override {
    own().touching.store(0);
    own().finished.store(number_);
    board_->notify();
  }

  void leave(std::chrono::microseconds look) override {
    finish();
    const auto all_finished = [&] {
      return std::all_of(board_->seats.begin(), board_->seats.end(),
                         [&](const Seat& seat) { return seat.finished.load() >= number_; });
    };
    board_->wait_until(
        keeps_core() ? look : none, Countdown(),
        [&] { return all_finished() || world_->aborted(); }, [] { return 0; });
    if (all_finished()) return;
    abandon();
    world_->throw_aborted(rank_);
  }

  void abandon() noexcept override {
    board_->wait_until(
        none, Countdown(),
        [&] {
          return std::all_of(board_->seats.begin(), board_->seats.end(),
                             [&](const Seat& seat) { return seat.touching.load() != number_; });
        },
        [] { return 0; });
  }

 private:
  static constexpr std::chrono::microseconds none{0};
  // Whether it keeps its core while it waits: where each rank has one, unless other programs want
  // it.
  bool keeps_core() { return world_->spins() && !contention_.wanted(); }
  Seat& own() { return board_->seats[self_]; }
  const Shown& shown(int member) const {
    return board_->seats[static_cast<std::size_t>(member)].shown[number_ % 2];
  }

  std::shared_ptr<World> world_;
  std::shared_ptr<Board> board_;
  std::vector<int> members_;
  int rank_;
  std::size_t self_;
  std::uint64_t number_ = 0;
  CoreContention contention_;
};

}  // namespace

std::unique_ptr<SharedRendezvous> make_rendezvous(std::shared_ptr<World> world, std::uint64_t group,
                                                  const std::vector<int>& members, int rank) {
  return std::make_unique<LocalRendezvous>(std::move(world), group, members, rank);
}

}  // namespace trident::local

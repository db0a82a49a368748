#include "parallel/transport/host_rendezvous.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <optional>

#include "base/error.h"
#include "core/core_contention.h"

namespace trident {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A member that sleeps checks at least this often whether others have ended.
constexpr milliseconds longest_sleep{20};

// The size of one slot. Few large chunks wait for each other less often than many small ones, which
// shows where cores are shared. In groups of many members each has less of a message.
std::size_t slot_size_of(std::size_t members) {
  constexpr std::size_t least = std::size_t{128} << 10, most = std::size_t{1} << 20;
  return std::clamp(4 * most / members, least, most) / 4096 * 4096;
}

// A member's state in shared memory, initially zero.
struct alignas(64) Seat {
  std::atomic<std::uint64_t> arrived;  // number of the member's last rendezvous
  std::atomic<int> process;
  Descriptor shown[2];        // in the last two rendezvous
  const std::byte* input[2];  // in the member's own memory
};
struct alignas(64) Board {
  std::atomic<std::uint32_t> bell;  // changes when a member arrives while others sleep
  std::atomic<std::uint32_t> sleepers;
  std::atomic<std::uint32_t> gone;  // members that have left the group for good
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(Board) == 64);

void sleep_on(std::atomic<std::uint32_t>& bell, std::uint32_t seen, Clock::duration limit) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count();
  const timespec time{static_cast<std::time_t>(ns / 1'000'000'000), ns % 1'000'000'000};
  ::syscall(SYS_futex, &bell, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void copy_from(int process, std::byte* to, const std::byte* from, std::size_t bytes) {
  while (bytes > 0) {
    const iovec here{to, bytes}, there{const_cast<std::byte*>(from), bytes};
    const ssize_t got = ::process_vm_readv(process, &here, 1, &there, 1, 0);
    if (got <= 0) {
      throw CommunicationError(fmt::format("the memory of process {} can't be read: {}", process,
                                           got < 0 ? std::strerror(errno) : "no bytes"));
    }
    to += got;
    from += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

class HostRendezvous final : public SharedRendezvous {
 public:
  HostRendezvous(std::unique_ptr<HostMemory::Region> region, std::vector<int> members, int rank,
                 HostWatch watch)
      : region_(std::move(region)),
        board_(*reinterpret_cast<Board*>(region_->data())),
        seats_(reinterpret_cast<Seat*>(region_->data() + sizeof(Board))),
        slots_(region_->data() + slots_begin(members.size())),
        slot_size_(slot_size_of(members.size())),
        members_(std::move(members)),
        self_(static_cast<std::size_t>(std::find(members_.begin(), members_.end(), rank) -
                                       members_.begin())),
        watch_(std::move(watch)) {
    seats_[self_].process.store(::getpid());
  }
  ~HostRendezvous() override {
    if (board_.gone.fetch_add(1) + 1 == members_.size()) region_->discard();
  }

  static std::size_t slots_begin(std::size_t members) {
    return (sizeof(Board) + members * sizeof(Seat) + 4095) / 4096 * 4096;
  }
  static std::size_t region_bytes(std::size_t members) {
    return slots_begin(members) + members * 2 * slot_size_of(members);
  }

  Sharing sharing() const override { return watch_.fetches ? Sharing::fetches : Sharing::slots; }
  std::size_t slot_bytes() const override { return slot_size_; }
  std::byte* slot() override { return slot_of(self_, number_ + 1); }

  Result arrive(const Descriptor& descriptor, const void* input, void*, microseconds time,
                Countdown countdown) override {
    ++number_;
    Seat& own = seats_[self_];
    own.shown[number_ % 2] = descriptor;
    own.input[number_ % 2] = static_cast<const std::byte*>(input);
    own.arrived.store(number_);
    if (board_.sleepers.load() > 0) {
      board_.bell.fetch_add(1);
      ::syscall(SYS_futex, &board_.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
    Result result;
    if (!look(time)) result = sleep(countdown);
    for (int i = 0; result.members.empty() && i < static_cast<int>(members_.size()); ++i) {
      if (this->descriptor(i) == descriptor) continue;
      result.outcome = Outcome::mismatch;
      result.members.push_back(i);
    }
    return result;
  }

  const Descriptor& descriptor(int member) const override {
    return seats_[member].shown[number_ % 2];
  }
  const std::byte* input(int member) const override {
    return slot_of(static_cast<std::size_t>(member), number_);
  }
  std::byte* output(int) const override { return nullptr; }
  const std::byte* address(int member) const override { return seats_[member].input[number_ % 2]; }
  void fetch(int member, std::byte* to, const std::byte* from, std::size_t bytes) override {
    copy_from(seats_[member].process.load(), to, from, bytes);
  }

  // Slots stay unchanged until the rendezvous after the next one, so no member is waited for.
  void finish() noexcept override {}
  void leave(microseconds) override {}
  void abandon() noexcept override {}

 private:
  std::byte* slot_of(std::size_t member, std::uint64_t number) const {
    return slots_ + (2 * member + number % 2) * slot_size_;
  }
  bool here(std::size_t i) const { return seats_[i].arrived.load() >= number_; }
  // The first member that is not here, or the number of members.
  std::size_t missing() const {
    std::size_t i = 0;
    while (i < members_.size() && here(i)) ++i;
    return i;
  }

  // Whether all members come soon. It spins where every rank has a core and no other program wants
  // this one; otherwise it yields the core between looks.
  bool look(microseconds time) {
    const std::size_t all = members_.size();
    const bool keeps_core = watch_.spins && !contention_.wanted();
    if (missing() == all) return true;
    if (time.count() == 0) return false;
    const auto end = Clock::now() + time;
    do {
      if (keeps_core) {
        for (int i = 0; i < 64; ++i) {
          if (missing() == all) return true;
          _mm_pause();
        }
      } else {
        ::sched_yield();
        if (missing() == all) return true;
      }
    } while (Clock::now() < end);
    return false;
  }

  Result sleep(Countdown& countdown) {
    const WaitTable::Entry entry(*watch_.waits, [this] {
      const std::size_t i = missing();
      return i < members_.size() ? members_[i] : no_rank;
    });
    struct Sleeper {
      explicit Sleeper(Board& b) : board(b) { board.sleepers.fetch_add(1); }
      ~Sleeper() { board.sleepers.fetch_sub(1); }
      Board& board;
    } const sleeper(board_);
    for (;;) {
      const std::uint32_t seen = board_.bell.load();
      if (missing() == members_.size()) return {};
      std::vector<int> ended, late;
      for (std::size_t i = 0; i < members_.size(); ++i) {
        // A member that has ended may have arrived before.
        if (!here(i) && watch_.ended(members_[i]) && !here(i)) ended.push_back(static_cast<int>(i));
      }
      if (!ended.empty()) return {Outcome::peer_ended, ended};
      if (countdown.over()) {
        for (std::size_t i = 0; i < members_.size(); ++i) {
          if (!here(i)) late.push_back(static_cast<int>(i));
        }
        if (late.empty()) return {};
        return {Outcome::late, late};
      }
      const auto left = countdown.next_look() - Clock::now();
      sleep_on(board_.bell, seen,
               std::clamp<Clock::duration>(left, microseconds(100), longest_sleep));
    }
  }

  std::unique_ptr<HostMemory::Region> region_;
  Board& board_;
  Seat* seats_;
  std::byte* slots_;
  std::size_t slot_size_;
  std::vector<int> members_;
  std::size_t self_;
  HostWatch watch_;
  std::uint64_t number_ = 0;
  CoreContention contention_;
};

}  // namespace

bool may_fetch(int process, std::uint64_t address, std::uint64_t word) {
  std::uint64_t found = 0;
  try {
    copy_from(process, reinterpret_cast<std::byte*>(&found),
              reinterpret_cast<const std::byte*>(address), sizeof found);
  } catch (const CommunicationError&) {
    return false;
  }
  return found == word;
}

std::unique_ptr<SharedRendezvous> make_host_rendezvous(const std::shared_ptr<HostMemory>& memory,
                                                       std::uint64_t group,
                                                       std::vector<int> members, int rank,
                                                       HostWatch watch) {
  bool full = false;
  auto region =
      HostMemory::region(memory, group, HostRendezvous::region_bytes(members.size()), full);
  if (full) return nullptr;  // null on all members
  if (region == nullptr)
    throw Error("mpi: the memory that the ranks of a host share can't be mapped");
  return std::make_unique<HostRendezvous>(std::move(region), std::move(members), rank,
                                          std::move(watch));
}

}  // namespace trident

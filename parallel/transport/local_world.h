// The ranks of one process: mailboxes in memory that the rank threads share, and the flags that end
// them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "parallel/transport/endpoint.h"
#include "parallel/transport/wait_table.h"

namespace trident::local {

struct Receive;

// A message in flight. The mutex of the receiver's mailbox guards it, except for `complete`.
struct Send {
  Descriptor descriptor;
  const std::byte* data = nullptr;  // the sender's, or `owned`
  std::size_t bytes = 0;
  std::unique_ptr<std::byte[]> owned;
  std::shared_ptr<QueueSide> side;            // `data` is in a GPU's memory
  Countdown::Clock::time_point deliver_at{};  // earliest delivery (injected latency)
  bool claimed = false;                       // a thread reads `data`
  std::atomic<bool> complete{false};          // the sender's buffer is free
  std::condition_variable changed;
};

// A posted receive, guarded like Send.
struct Receive {
  Descriptor expected;
  Descriptor got;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<QueueSide> side;  // `data` is in a GPU's memory
  bool is_view = false;
  bool claimed = false;  // a thread writes `data`
  bool mismatch = false;
  std::shared_ptr<Send> source;  // the matched message
  std::atomic<bool> complete{false};
  std::condition_variable changed;
};

struct Link {
  std::deque<std::shared_ptr<Send>> messages;
  std::deque<std::shared_ptr<Receive>> receives;
};

struct LinkKey {
  std::uint64_t group = 0;
  int sender = 0;
  int channel = 0;
  bool operator==(const LinkKey&) const = default;
};
struct LinkKeyHash {
  std::size_t operator()(const LinkKey& key) const {
    return static_cast<std::size_t>((key.group ^ (static_cast<std::uint64_t>(key.sender) << 8 |
                                                  static_cast<std::uint64_t>(key.channel))) *
                                    0x9e3779b97f4a7c15ull);
  }
};

// The messages that the ranks have sent to one rank, and the receives that wait for one.
struct Mailbox {
  std::mutex mutex;
  std::unordered_map<LinkKey, Link, LinkKeyHash> links;
  std::vector<std::condition_variable*> sleepers;  // of threads that wait in this mailbox
};

class Board;  // the rendezvous of a group (local_rendezvous.cc)

class World {
 public:
  World(int ranks, const TransportOptions& options);

  int size() const { return static_cast<int>(mailboxes_.size()); }
  const TransportOptions& options() const { return options_; }
  Mailbox& mailbox(int rank) { return *mailboxes_[static_cast<std::size_t>(rank)]; }
  bool spins() const { return spins_; }
  // The waits of a rank's threads; a wait is entered where it takes longer.
  WaitTable& waits(int rank) { return waits_[static_cast<std::size_t>(rank)]; }
  FileTimes& file_times(int rank) { return file_times_[static_cast<std::size_t>(rank)]; }
  bool files_hold_up() const;
  // The board of a group with this many members, made at the first call.
  std::shared_ptr<Board> board(std::uint64_t group, std::size_t members);

  bool aborted() const { return aborted_.load(); }
  bool ended(int rank) const { return ended_[static_cast<std::size_t>(rank)].load(); }
  [[noreturn]] void throw_aborted(int rank) const;

  // The first call of abort() or fail() wins; an AbortedError only ends a world that runs.
  void abort(int rank, const std::string& reason) noexcept;
  void fail(int rank, const std::exception_ptr& error) noexcept;
  // Reports that the rank's body has returned or thrown.
  void end(int rank, const std::exception_ptr& error) noexcept;
  // The error to report for the run; null if no body threw.
  std::exception_ptr first_error() const;

 private:
  void wake_all() noexcept;

  TransportOptions options_;
  bool spins_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  std::atomic<bool> aborted_{false};
  std::vector<std::atomic<bool>> ended_;
  std::vector<WaitTable> waits_;
  std::vector<FileTimes> file_times_;
  std::mutex boards_mutex_;
  std::unordered_map<std::uint64_t, std::weak_ptr<Board>> boards_;
  mutable std::mutex mutex_;  // guards the members below
  int culprit_ = -1;
  std::string reason_;
  std::exception_ptr first_;
  std::vector<std::exception_ptr> thrown_;  // by the bodies
};

void wake(Board& board) noexcept;
std::unique_ptr<SharedRendezvous> make_rendezvous(std::shared_ptr<World> world, std::uint64_t group,
                                                  const std::vector<int>& members, int rank);

// The endpoint of rank `rank`.
std::shared_ptr<Endpoint> make_endpoint(std::shared_ptr<World> world, int rank);

}  // namespace trident::local

// The waits of one rank's threads: which ranks they wait for. Where a rank is late because it waits
// itself, the rank at the end of the chain is the cause.
//
// Any thread may call it.
#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <utility>

namespace trident {

inline constexpr int no_rank = -1, no_answer = -2, works_on_files = -3;

// The number of polls after which a wait enters itself. Other ranks may ask for a wait that takes
// some milliseconds.
inline constexpr int polls_before_entry = 64;

class WaitTable {
 public:
  // A wait, entered for as long as the object lives. `for_whom` gives a world rank; any thread may
  // call it.
  class Entry {
   public:
    Entry(WaitTable& table, std::function<int()> for_whom) : table_(table) {
      const std::lock_guard lock(table_.mutex_);
      place_ = table_.waits_.insert(table_.waits_.end(), std::move(for_whom));
    }
    ~Entry() {
      const std::lock_guard lock(table_.mutex_);
      table_.waits_.erase(place_);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    WaitTable& table_;
    std::list<std::function<int()>>::iterator place_;
  };

  // The rank that the longest wait is for, or `no_rank`.
  int rank() const {
    const std::lock_guard lock(mutex_);
    return waits_.empty() ? no_rank : waits_.front()();
  }

 private:
  mutable std::mutex mutex_;
  std::list<std::function<int()>> waits_;
};

// "; rank 1 waits for rank 3, which waits for rank 2": the chain from `late` to a rank that waits
// for no other, or back into a circle. "" where `late` waits for no rank. waits_for(rank) gives a
// rank, or no_rank, no_answer or works_on_files.
std::string text_of_waits(int late, const std::function<int(int)>& waits_for);

}  // namespace trident

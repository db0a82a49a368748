// For whom the threads of one rank wait. Where a rank is late because it waits itself, the one at
// the end of the chain is the cause.
#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <utility>

namespace trident {

inline constexpr int nobody = -1, no_answer = -2, works_on_files = -3;

// Looks after which a wait enters itself: one that takes some milliseconds is one that others may
// ask for.
inline constexpr int looks_before_known = 64;

class WaitTable {
 public:
  // A wait, while it lasts. `for_whom` gives a world rank; it may be called by any thread.
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

  // For whom the longest wait is.
  int rank() const {
    const std::lock_guard lock(mutex_);
    return waits_.empty() ? nobody : waits_.front()();
  }

 private:
  mutable std::mutex mutex_;
  std::list<std::function<int()>> waits_;
};

// "; rank 1 waits for rank 3, which waits for rank 2": from `late` to the rank that waits for
// nobody, or back into a circle; "" where `late` waits for nobody. waits_for(rank) gives a rank, or
// nobody, no_answer or works_on_files.
std::string text_of_waits(int late, const std::function<int(int)>& waits_for);

}  // namespace trident

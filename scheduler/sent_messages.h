// How long what a rank sends stays with it: a send never waits for the peer, so its message is kept
// until the peer has posted the receive.
#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/action.h"
#include "scheduler/simulate.h"

namespace trident {

// In a pass whose forwards and halves of a backward take one unit each on every stage, and whose
// transfers take none. A run's own times differ, so this is what is usual, no bound.
class SentMessages {
 public:
  // `lists` are those of lower(schedule); both outlive this. The schedule must be valid.
  SentMessages(const Schedule& schedule, const std::vector<std::vector<LoweredAction>>& lists);

  // Of the sends of `rank`, in the order of its list: which of its sends, counted from 0, is the
  // first to find the message taken; SIZE_MAX where none does before the pass ends.
  std::vector<std::size_t> found_taken(int rank) const;

 private:
  template <class Visit>
  void each_transfer(std::size_t rank, Visit visit) const;

  const Schedule& schedule_;
  const std::vector<std::vector<LoweredAction>>& lists_;
  Simulation simulation_;
  std::vector<double> posted_;  // when its receive is, by transfer_tag()
};

}  // namespace trident

// Estimates how long a rank keeps the messages that it sends. A send never waits for the peer, so
// the rank keeps the message until the peer has posted the receive.
#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/action.h"
#include "scheduler/simulate.h"

namespace trident {

// The estimate simulates a pass in which forwards and halves of a backward take one unit each on
// every stage, and transfers take no time. A real run's times differ, so the result is typical and
// not a bound.
class SentMessages {
 public:
  // `lists` are the lists of lower(schedule). Both arguments must outlive this object. The schedule
  // must be valid.
  SentMessages(const Schedule& schedule, const std::vector<std::vector<LoweredAction>>& lists);

  // For each send of `rank`, in list order: the number (from 0) of the rank's first later send at
  // which the peer has taken the message; SIZE_MAX if no later send of the pass finds it taken.
  std::vector<std::size_t> first_send_after_receipt(int rank) const;

 private:
  template <class Visit>
  void each_transfer(std::size_t rank, Visit visit) const;

  const Schedule& schedule_;
  const std::vector<std::vector<LoweredAction>>& lists_;
  Simulation simulation_;
  std::vector<double> posted_;  // time of each receive's post, by transfer_tag()
};

}  // namespace trident

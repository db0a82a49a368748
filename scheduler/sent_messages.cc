#include "scheduler/sent_messages.h"

#include <algorithm>
#include <cstdint>

namespace trident {
namespace {

bool opens_receive(Step step) {
  return step == Step::post_receive_forward || step == Step::post_receive_backward;
}

bool awaits(Step step) {
  return step == Step::wait_receive_forward || step == Step::wait_receive_backward;
}

}  // namespace

SentMessages::SentMessages(const Schedule& schedule,
                           const std::vector<std::vector<LoweredAction>>& lists)
    : schedule_(schedule),
      lists_(lists),
      simulation_(simulate(schedule, stage_times(schedule, ShareTimes{}))),
      posted_(2 * static_cast<std::size_t>(schedule.total_stages()) *
              static_cast<std::size_t>(schedule.microbatches)) {
  for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
    each_transfer(rank, [&](const LoweredAction& action, double time) {
      if (!opens_receive(action.step)) return;
      posted_[static_cast<std::size_t>(transfer_tag(action, schedule_.microbatches))] = time;
    });
  }
}

// Calls visit(action, time) for each transfer of a rank's list, with the time at which it runs.
template <class Visit>
void SentMessages::each_transfer(std::size_t rank, Visit visit) const {
  const std::vector<TimedAction>& timed = simulation_.actions[rank];
  double now = 0;
  std::size_t computes = 0;
  for (const LoweredAction& action : lists_[rank]) {
    if (action.step == Step::compute) {
      now = timed.at(computes++).end;
    } else {
      // A wait, and the transfers after it, run when the compute that needs the input begins.
      if (awaits(action.step) && computes < timed.size()) now = timed[computes].start;
      visit(action, now);
    }
  }
}

std::vector<std::size_t> SentMessages::first_send_after_receipt(int rank) const {
  std::vector<double> sent, taken;
  each_transfer(static_cast<std::size_t>(rank), [&](const LoweredAction& action, double time) {
    if (!is_send(action.step)) return;
    const auto tag = static_cast<std::size_t>(transfer_tag(action, schedule_.microbatches));
    sent.push_back(time);
    taken.push_back(std::max(time, posted_[tag]));
  });
  std::vector<std::size_t> found(sent.size(), SIZE_MAX);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto begin = sent.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    const auto first = std::lower_bound(begin, sent.end(), taken[i]);
    if (first != sent.end()) found[i] = static_cast<std::size_t>(first - sent.begin());
  }
  return found;
}

}  // namespace trident

#include "core/countdown.h"

#include <algorithm>
#include <utility>

namespace trident {
namespace {

using std::chrono::milliseconds;

// At most this many slices of one gap count. A loaded machine may wake a thread late.
constexpr int counted_slices = 4;

}  // namespace

Countdown::Countdown(Clock::duration limit, std::function<bool()> excused)
    : slice_(std::clamp<Clock::duration>(limit / 16, milliseconds(5), milliseconds(100))),
      left_(limit),
      limit_(limit),
      excused_(std::move(excused)) {}

Countdown::Clock::time_point Countdown::next_look() const {
  return last_ + (left_ ? std::min(slice_, *left_) : slice_);
}

bool Countdown::over() {
  const Clock::time_point now = Clock::now();
  if (left_) *left_ -= std::min(now - last_, slice_ * counted_slices);
  last_ = now;
  if (!left_ || left_->count() > 0) return false;
  if (!excused_ || !excused_()) return true;
  restart();
  return false;
}

void Countdown::restart() {
  last_ = Clock::now();
  left_ = limit_;
}

}  // namespace trident

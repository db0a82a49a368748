#include "parallel/transport/file_work.h"

namespace trident {
namespace {

// File work that is shorter than this part of the timeout is no reason to be late.
constexpr int short_part = 8;

}  // namespace

void FileTimes::begin() {
  const std::lock_guard lock(mutex_);
  if (under_way_++ == 0) begun_ = Clock::now();
}

void FileTimes::end() {
  const std::lock_guard lock(mutex_);
  if (--under_way_ == 0) ended_ = Clock::now();
}

bool FileTimes::hold_up(Clock::duration timeout) const {
  const std::lock_guard lock(mutex_);
  if (under_way_ > 0) return true;
  return ended_ - begun_ > timeout / short_part && Clock::now() - ended_ < timeout;
}

}  // namespace trident

#include "training/data/read_ahead.h"

#include <memory>

namespace trident {

std::vector<HostMicroBatch> ReadAhead::take(std::int64_t k, std::int64_t end) {
  if (next_ != k) tasks_.drain();
  std::vector<HostMicroBatch> list = next_ == k ? ahead_.get() : read_(k);
  next_ = -1;
  if (k + 1 >= end) return list;
  const auto task = std::make_shared<std::packaged_task<std::vector<HostMicroBatch>()>>(
      [this, k] { return read_(k + 1); });
  ahead_ = task->get_future();
  next_ = k + 1;
  if (!tasks_.post([task] { (*task)(); })) (*task)();
  return list;
}

}  // namespace trident

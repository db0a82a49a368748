#include "datasets/read_ahead.h"

#include <memory>
#include <utility>

namespace trident {

std::vector<HostMicroBatch> ReadAhead::take(std::int64_t k, std::int64_t count, std::int64_t next) {
  tasks_.drain();
  std::vector<HostMicroBatch> list;
  if (std::exchange(next_, -1) == k) list = ahead_.get();
  if (static_cast<std::int64_t>(list.size()) != count) list = read_(k, count);
  if (next == 0) return list;
  const auto task = std::make_shared<std::packaged_task<std::vector<HostMicroBatch>()>>(
      [this, k, next] { return read_(k + 1, next); });
  ahead_ = task->get_future();
  next_ = k + 1;
  if (!tasks_.post([task] { (*task)(); })) (*task)();
  return list;
}

}  // namespace trident

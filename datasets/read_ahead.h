// Reads what the next iteration takes while the present one runs, on a thread of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <vector>

#include "base/process/background.h"
#include "datasets/batch_sampler.h"

namespace trident {

class ReadAhead {
 public:
  // read(k, count) gives `count` micro-batches from those of iteration k on, from 0; nobody else
  // may use what it uses.
  using Read =
      std::function<std::vector<HostMicroBatch>(std::int64_t iteration, std::int64_t count)>;
  explicit ReadAhead(Read read) : read_(std::move(read)) {}

  // Those of iteration k; then begins to read `next` of k + 1, if not 0. What read() throws is
  // thrown for the iteration that it was for.
  std::vector<HostMicroBatch> take(std::int64_t k, std::int64_t count, std::int64_t next);

 private:
  Read read_;
  std::int64_t next_ = -1;  // iteration that is being read; -1: none is
  std::future<std::vector<HostMicroBatch>> ahead_;
  BackgroundTasks tasks_{1};  // last: ends before what it works on
};

}  // namespace trident

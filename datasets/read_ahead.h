// Reads the next iteration's micro-batches on a background thread while the current iteration runs.
// One thread calls take().
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
  // read(k, count) returns `count` micro-batches, beginning with the first of iteration k, from 0.
  // It runs on the background thread; no other code may use the objects that it uses.
  using Read =
      std::function<std::vector<HostMicroBatch>(std::int64_t iteration, std::int64_t count)>;
  explicit ReadAhead(Read read) : read_(std::move(read)) {}

  // Returns `count` micro-batches of iteration k. Then begins to read `next` micro-batches of
  // iteration k + 1, if `next` isn't 0. An exception of read() is thrown by the take() of the
  // iteration that it read.
  std::vector<HostMicroBatch> take(std::int64_t k, std::int64_t count, std::int64_t next);

 private:
  Read read_;
  std::int64_t next_ = -1;  // the iteration that is read ahead; -1: none
  std::future<std::vector<HostMicroBatch>> ahead_;
  BackgroundTasks tasks_{1};  // last member: its thread ends before the others are destroyed
};

}  // namespace trident

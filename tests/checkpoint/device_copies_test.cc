// Saves of copies that a GPU makes in its own memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "kernels/cuda_device.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/node_runs.h"

namespace trident::testing {
namespace {

const Overrides saving{"checkpoint.asynchronous=true", "checkpoint.save_interval=3",
                       "checkpoint.min_slice=0",       "training.train_iters=8",
                       "training.deterministic=true",  "runtime.device=cuda"};

// Holds all of a GPU's free memory but `left` bytes while it lives.
class Hog {
 public:
  explicit Hog(std::int64_t left)
      : device_(make_cuda_device(0)),
        bytes_(static_cast<std::size_t>(device_->memory().free - left)),
        memory_(device_->allocate(bytes_)) {}
  ~Hog() { device_->deallocate(memory_, bytes_); }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;

 private:
  std::unique_ptr<Device> device_;
  std::size_t bytes_;
  void* memory_;
};

struct Ended {
  std::map<std::string, std::uint64_t> third, last;  // sums of these checkpoints' tensors
  std::int64_t staged = 0;
  bool waited = false;  // for the disk, which writes nothing before iteration 5 has ended
};

Ended run(const Overrides& more, const Layout& layout = {}) {
  const TempDir dir;
  TrainingInputs inputs = prepare_training(run_config(dir.path(), small + saving + more, layout));
  std::atomic<bool> fifth = false, shut = false;
  Ended ended;
  std::atomic<bool> late = false;
  HookedFiles files([&] {
    for (int i = 0; shut && !fifth; ++i) {
      if (i > 3000) late = true;
      if (late) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  inputs.files = &files;
  // The limit is less than a portion: all other copies must be written before the state may change.
  inputs.config.checkpoint.staging_limit = 1;
  Messages messages;
  TrainerHooks hooks = messages.hooks();
  hooks.on_iteration = [&](IterationMetrics& m) {
    ended.staged = std::max(ended.staged, m.peak_memory.at("staging"));
    shut = m.iteration >= 3;
    if (m.iteration == 5) fifth = true;  // the next save waits for the previous one
  };
  train(inputs, On::cuda, hooks);
  ended.waited = late;
  ended.third = sums_of(dir / "w/iteration-3");
  ended.last = sums_of(dir / "w/iteration-8");
  return ended;
}

TEST(DeviceCopies, TrainingWaitsForNoDiskAndTheStateIsOfOneIteration) {
  for (const Layout& layout : {Layout{}, Layout{.data = 2, .tensor = 2}}) {
    const Overrides stage = layout.data > 1 ? Overrides{"zero_optimization.stage=1"} : Overrides{};
    const Ended there = run(stage, layout),
                on_host = run(stage + Overrides{"checkpoint.device_copies=false"}, layout);
    EXPECT_FALSE(there.waited);
    EXPECT_GT(there.staged, 0);
    EXPECT_TRUE(on_host.waited);
    EXPECT_EQ(on_host.staged, 0);
    EXPECT_EQ(there.third, on_host.third);
    EXPECT_EQ(there.last, on_host.last);
  }
}

TEST(DeviceCopies, TakeOnlyFreeMemory) {
  const Ended there = run({});
  const Hog hog(make_cuda_device(0)->memory().total / 16);
  const Ended without = run({});
  EXPECT_GT(there.staged, 0);
  EXPECT_EQ(without.staged, 0);
  EXPECT_EQ(there.third, without.third);
  EXPECT_EQ(there.last, without.last);
}

}  // namespace
}  // namespace trident::testing

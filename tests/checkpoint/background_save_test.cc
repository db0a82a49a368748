// Asynchronous saves, which run while training continues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "planner/plan/plan.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/checkpoint_runs.h"
#include "tests/checkpoint/node_runs.h"

namespace trident::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

const Overrides asynchronous_saves{"checkpoint.asynchronous=true", "checkpoint.min_slice=0"};

// A gate for threads that work on files. After shut(), they wait until open(), which is permanent.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, seconds(60), [&] { return open_ || !shut_; })) late_ = true;
  }
  void shut() {
    const std::lock_guard lock(mutex_);
    shut_ = true;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool late() const { return late_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool shut_ = false, open_ = false, late_ = false;
};

// The sums of the tensors of each checkpoint in a run's folder, by iteration.
std::map<std::int64_t, std::map<std::string, std::uint64_t>> all_sums(const std::string& dir) {
  std::map<std::int64_t, std::map<std::string, std::uint64_t>> sums;
  for (const FoundCheckpoint& one : find_checkpoints(dir + "/w")) {
    sums[one.iteration] = sums_of(one.path);
  }
  return sums;
}

struct SavedRun {
  const char* name;
  Layout layout;
  Overrides overrides;
};
const std::vector<SavedRun> saved_runs{
    {"one rank", {1, 1, 1}, {}},
    {"ZeRO 3, bf16", {2, 1, 2}, {"zero_optimization.stage=3", "precision.dtype=bf16"}},
    {"ZeRO 2 over two tensor ranks", {2, 2, 1}, {"zero_optimization.stage=2"}},
    {"updates that may be rolled back",
     {1, 1, 4},
     {"pipeline.schedule=zb_h2", "gradient_clipping=0.5"}},
    {"an update for each micro-batch",
     {1, 1, 4},
     {"pipeline.schedule=pipedream", "gradient_clipping=0", "model.tie_word_embeddings=false",
      "training.on_non_finite=stop"}},
    {"Adafactor, fp16",
     {1, 1, 2},
     {"optimizer.type=Adafactor", "optimizer.params.betas=null", "optimizer.params.eps=null",
      "precision.dtype=fp16"}}};

// Each save runs at least until the second update after it, and contains nothing of these updates.
TEST(BackgroundSave, TrainingContinuesAndTheStateIsOfOneIteration) {
  for (const SavedRun& c : saved_runs) {
    SCOPED_TRACE(c.name);
    const TempDir synchronous, dir;
    const Overrides each = c.overrides + Overrides{"checkpoint.save_interval=3"};
    train(run_config(synchronous.path(), each, c.layout));
    TrainingInputs inputs =
        prepare_training(run_config(dir.path(), each + asynchronous_saves, c.layout));
    Gate gate;
    HookedFiles files([&] { gate.wait(); });
    inputs.files = &files;
    Messages messages;
    TrainerHooks hooks = messages.hooks();
    hooks.on_iteration = [&](IterationMetrics& m) {
      gate.shut();
      if (m.iteration == 5) gate.open();  // the save of iteration 3 waits for this
    };
    train(inputs, usual_device(), hooks);
    EXPECT_FALSE(gate.late());
    EXPECT_EQ(all_sums(dir.path()), all_sums(synchronous.path()));
    EXPECT_EQ(metrics_in(dir.path()), metrics_in(synchronous.path()));
    for (const FoundCheckpoint& one : find_checkpoints(dir / "w")) {
      EXPECT_EQ(damages(one.path, *one.manifest), std::vector<std::string>());
    }
  }
}

// The disk is slower than training, and the memory holds one or two portions.
TEST(BackgroundSave, CopiesTakeNoMoreThanTheirLimit) {
  for (const SavedRun& c : saved_runs) {
    SCOPED_TRACE(c.name);
    const TempDir synchronous, dir;
    const Overrides each =
        c.overrides + Overrides{"checkpoint.save_interval=1", "checkpoint.device_copies=false"};
    train(run_config(synchronous.path(), each, c.layout));
    TrainingInputs inputs =
        prepare_training(run_config(dir.path(), each + asynchronous_saves, c.layout));
    constexpr std::int64_t limit = 150'000;  // the embedding takes 99 kB
    inputs.config.checkpoint.staging_limit = limit;
    HookedFiles files([] { std::this_thread::sleep_for(std::chrono::microseconds(200)); });
    inputs.files = &files;
    Messages messages;
    TrainerHooks hooks = messages.hooks();
    std::int64_t most = 0;
    hooks.on_iteration = [&](IterationMetrics& m) {
      most = std::max(most, m.peak_memory.at("staging"));
    };
    train(inputs, usual_device(), hooks);
    EXPECT_EQ(all_sums(dir.path()), all_sums(synchronous.path()));
    EXPECT_LE(most, limit);
    EXPECT_GT(most, usual_device() == On::cuda ? -1 : 0);
  }
}

// The next save reuses the memory of a failed one, and the memory is counted once.
TEST(BackgroundSave, FailedSavesLoseNoMemory) {
  const auto most_staged = [](bool failing) {
    const TempDir dir;
    TrainingInputs inputs = prepare_training(run_config(
        dir.path(), small + Overrides{"checkpoint.save_interval=1", "training.train_iters=8"} +
                        asynchronous_saves));
    std::atomic<bool> fails = false;
    int calls = 0;
    HookedFiles files([&] {  // fails after some portions
      if (fails && ++calls % 10 == 0) throw Error("the disk is broken");
    });
    inputs.files = &files;
    Messages messages;
    TrainerHooks hooks = messages.hooks();
    std::int64_t most = 0;
    hooks.on_iteration = [&](IterationMetrics& m) {
      most = std::max(most, m.peak_memory.at("staging"));
      fails = failing && m.iteration < 6;
    };
    train(inputs, usual_device(), hooks);
    EXPECT_EQ(messages.all().find("CHECKPOINT FAILED") != std::string::npos, failing);
    return most;
  };
  EXPECT_LE(most_staged(true), most_staged(false));
}

// On a GPU, the plan counts the copies in the GPU's memory.
TEST(BackgroundSave, ThePlanCountsTheCopies) {
  const TempDir dir;
  const Config config = run_config(
      dir.path(), asynchronous_saves + Overrides{"checkpoint.save_interval=2", on_this_device});
  TrainingInputs inputs = prepare_training(config);
  Gate gate;
  HookedFiles files([&] { gate.wait(); });
  inputs.files = &files;
  Messages messages;
  TrainerHooks hooks = messages.hooks();
  std::map<std::string, std::int64_t> peaks;
  hooks.on_iteration = [&](IterationMetrics& m) {
    gate.shut();
    if (m.iteration == 4) gate.open();
    peaks = m.peak_memory;
  };
  train(inputs, usual_device(), hooks);
  const Plan plan = make_plan(config, *built_in_architectures().at(config.model.architecture));
  // The plan counts the vocabulary's padding, which is not saved.
  const std::int64_t planned = largest_rank(plan).at("staging"), staged = peaks.at("staging");
  EXPECT_LE(staged, planned);
  EXPECT_GT(static_cast<double>(staged), 0.9 * static_cast<double>(planned));
  if (usual_device() == On::cpu) {
    EXPECT_EQ(largest_rank(plan).at("total") - planned, peaks.at("total") - staged);
  }
}

// A run that stops waits for the save in progress, and then saves the iterations after it.
TEST(BackgroundSave, EndsBeforeTheRunDoes) {
  const TempDir dir;
  TrainingInputs inputs = prepare_training(run_config(
      dir.path(), asynchronous_saves + Overrides{"checkpoint.save_interval=2"}, {2, 1, 1}));
  HookedFiles files([] { std::this_thread::sleep_for(milliseconds(1)); });
  inputs.files = &files;
  Messages messages;
  train(inputs, usual_device(), messages.hooks(3));
  std::vector<std::int64_t> there;
  for (const auto& [iteration, sums] : all_sums(dir.path())) there.push_back(iteration);
  EXPECT_EQ(there, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(checkpoint_at(dir / "w").iteration, 3);
}

}  // namespace
}  // namespace trident::testing

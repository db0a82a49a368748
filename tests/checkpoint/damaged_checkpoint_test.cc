// Checkpoints with a damaged byte or a missing part, and checkpoints on disks that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "checkpoint/restore.h"
#include "engine/setup/from_config.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/checkpoint_runs.h"

namespace trident::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(DamagedCheckpoint, EachDamagedByteIsFoundAndNamed) {
  const TempDir dir;
  train(run_config(dir.path(), small + Overrides{"checkpoint.save_interval=3"}));
  const std::string folder = dir / "w/iteration-6";
  const Manifest manifest = open_checkpoint(folder);
  EXPECT_EQ(damages(folder, manifest), std::vector<std::string>());
  const bool all = std::getenv("TRIDENT_TEST_FULL") != nullptr;
  for (const auto& [name, file] : manifest.files) {
    const std::string path = folder + "/" + name;
    const std::string text = read_file(path);
    const std::size_t step = all ? 1 : std::max<std::size_t>(1, text.size() / 50);
    for (std::size_t i = 0; i < text.size(); i += step) {
      std::string other = text;
      other[i] = static_cast<char>(~other[i]);
      write_file_atomic(path, other);
      const auto found = damages(folder, manifest);
      ASSERT_EQ(found.size(), 1u) << name << " " << i;
      EXPECT_THAT(found.front(), HasSubstr(path));
      write_file_atomic(path, text.substr(0, i));
      EXPECT_THROW(open_checkpoint(folder), RequestError) << name << " " << i;
    }
    fs::remove(path);
    EXPECT_THROW(open_checkpoint(folder), RequestError) << name;
    write_file_atomic(path, text);
  }
}

TEST(DamagedCheckpoint, WhereTheNewestIsDamagedTheOneBeforeServes) {
  for (const char* file : {"trident/manifest.json", "trident/config.json", "model.safetensors",
                           "trident/state-00001-of-00002.safetensors"}) {
    SCOPED_TRACE(file);
    const TempDir dir, undamaged;
    const Overrides each{"checkpoint.save_interval=2", "training.train_iters=4",
                         "checkpoint.min_slice=0"};
    const auto config = [&](const TempDir& at) { return run_config(at.path(), each, {2, 1, 1}); };
    train(config(undamaged));
    train(config(dir));
    const std::string path = dir / "w/iteration-4/" + file;
    std::string text = read_file(path);
    text[text.size() - 9] ^= 1;
    write_file_atomic(path, text);
    Messages messages;
    train(config(dir), usual_device(), messages.hooks());
    EXPECT_THAT(messages.all(), HasSubstr(path));
    EXPECT_THAT(messages.all(), HasSubstr("resuming from " + (dir / "w/iteration-2")));
    EXPECT_EQ(metrics_in(dir.path()), metrics_in(undamaged.path()));
    // The checkpoint that replaced the damaged one is complete.
    EXPECT_EQ(damages(dir / "w/iteration-4", open_checkpoint(dir / "w/iteration-4")),
              std::vector<std::string>());
    EXPECT_EQ(sums_of(dir / "w/iteration-4"), sums_of(undamaged / "w/iteration-4"));
  }
}

TEST(DamagedCheckpoint, NoRunBeginsAnewWhereNoneIsComplete) {
  const TempDir dir;
  train(run_config(dir.path(), {"checkpoint.save_interval=6"}));
  fs::remove(dir / "w/iteration-6/model.safetensors");
  EXPECT_THROW(prepare_training(run_config(dir.path())), RequestError);
  Config never = run_config(dir.path());
  never.checkpoint.resume = "never";
  EXPECT_TRUE(prepare_training(never).start.checkpoints.empty());
}

// The folder may lie on another disk, for example. A run must not mistake it for a missing
// checkpoint.
TEST(DamagedCheckpoint, LinksAndFoldersThatCantBeListedAreErrors) {
  const TempDir dir;
  train(run_config(dir.path(), {"checkpoint.save_interval=6"}));
  fs::rename(dir / "w/iteration-6", dir / "elsewhere");
  fs::create_directory_symlink(dir / "elsewhere", dir / "w/iteration-6");
  EXPECT_THAT(find_checkpoints(dir / "w").at(0).problem, HasSubstr("is a link or no directory"));
  EXPECT_THROW(prepare_training(run_config(dir.path())), RequestError);
  fs::create_symlink("loop", dir / "loop");
  EXPECT_THAT(message_of<RequestError>([&] { find_checkpoints(dir / "loop"); }),
              HasSubstr("can't be listed"));
  EXPECT_TRUE(find_checkpoints(dir / "none").empty());
}

// A loss that is not a number concerns the evaluation, not the weights.
TEST(DamagedCheckpoint, AValidationLossThatIsNoNumberIsLeftOut) {
  const TempDir dir;
  Messages messages;
  train(run_config(dir.path(),
                   {"checkpoint.save_interval=2", "optimizer.type=SGD", "optimizer.params.lr=1e18",
                    "optimizer.params.betas=null", "optimizer.params.eps=null",
                    "training.max_skipped_steps=100", "training.eval_interval=1",
                    "training.eval_iters=1", "data.split=80,20"}),
        usual_device(), messages.hooks());
  bool none = false;
  for (const auto& line : read_metrics(dir / "log/metrics.jsonl")) {
    none = none || line.at("validation_loss").is_null();
  }
  EXPECT_TRUE(none);
  const std::vector<FoundCheckpoint> found = find_checkpoints(dir / "w");
  EXPECT_GE(found.size(), 2u);
  for (const FoundCheckpoint& one : found) EXPECT_TRUE(one.manifest.has_value()) << one.problem;
}

TEST(DamagedCheckpoint, OfAnotherModelIsRefusedByKey) {
  const TempDir dir;
  train(run_config(dir.path(), {"checkpoint.save_interval=6"}));
  try {
    prepare_training(run_config(dir.path(), {"model.num_layers=2"}));
    FAIL() << "no error";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("config: /model/num_layers: is 2, the checkpoint's model has 4"));
  }
}

TEST(DamagedCheckpoint, WithoutATensorOrNumberNamesIt) {
  const TempDir dir;
  const Config config = run_config(dir.path(), {"checkpoint.save_interval=6"});
  train(config);
  const std::string folder = dir / "w/iteration-6";
  const Manifest complete = open_checkpoint(folder);
  struct Damage {
    Manifest manifest;
    std::string message;  // a part of it
  };
  std::vector<Damage> all{{complete, "no error"}};
  for (const auto& [name, tensor] : complete.tensors) {
    all.push_back({complete, name});
    all.back().manifest.tensors.erase(name);
    all.push_back({complete, name});
    all.back().manifest.tensors[name].shape = Shape{7};
  }
  for (const auto& [name, number] : complete.numbers) {
    // The test leaves out the trainer's numbers and the numbers saved for people.
    if (name == "skipped" || name.starts_with("data.train.")) continue;
    all.push_back({complete, name});
    all.back().manifest.numbers.erase(name);
    for (const double beyond : {-1.0, 1e300}) {
      all.push_back({complete, "needs a number from"});
      all.back().manifest.numbers[name] = std::holds_alternative<double>(number)
                                              ? SavedNumber(beyond)
                                              : SavedNumber(beyond < 0 ? -1 : INT64_MAX);
    }
  }
  EXPECT_GT(all.size(), 50u);
  on_ranks(config, transport_options(config), [&](Rank& own) {
    for (const Damage& damage : all) {
      CheckpointReader reader(folder, damage.manifest);
      State state = own.stepper.state();
      std::string text = "no error";
      try {
        restore_state(own.stepper.context(), state, reader);
      } catch (const RequestError& error) {
        text = error.what();
      }
      EXPECT_THAT(text, HasSubstr(damage.message));
    }
  });
}

TEST(DamagedCheckpoint, ThatCantBeSavedLeavesTheOneBeforeAndTheRunContinues) {
  const TempDir uninterrupted;
  const Overrides each = small + Overrides{"checkpoint.save_interval=2", "checkpoint.min_slice=0"};
  train(run_config(uninterrupted.path(), each, {2, 1, 1}));
  int failures = 0;
  for (int fails = 0;; fails += fails < 30 ? 1 : 7) {  // the number of the operation that fails
    const bool asynchronous = fails % 2 == 1;
    SCOPED_TRACE(fails);
    const TempDir dir;
    // The first checkpoint exists.
    Messages first, messages;
    train(run_config(dir.path(), each, {2, 1, 1}), usual_device(), first.hooks(2));
    const auto before = sums_of(dir / "w/iteration-2");
    TrainingInputs inputs = prepare_training(
        run_config(dir.path(),
                   each + Overrides{"training.train_iters=5", "checkpoint.save_interval=4",
                                    asynchronous ? "checkpoint.asynchronous=true"
                                                 : "checkpoint.asynchronous=false"},
                   {2, 1, 1}));
    std::atomic<int> left = fails;
    HookedFiles files([&] {
      if (left.fetch_sub(1) == 0) throw Error("No space left on device");
    });
    inputs.files = &files;
    std::string error;
    try {
      train_local(inputs, messages.hooks());
    } catch (const Error& failure) {
      error = failure.what();
    }
    if (left >= 0) break;
    ++failures;
    EXPECT_THAT(messages.all() + error, HasSubstr("No space left on device"));
    if (!asynchronous) {  // an asynchronous save may have failed after the last line
      const auto last = read_metrics(dir / "log/metrics.jsonl").back();
      const bool reported =
          messages.all().find("CHECKPOINT FAILED after iteration 4") != std::string::npos;
      EXPECT_EQ(last.at("failed_saves"), reported ? 1 : 0);
    }
    EXPECT_EQ(sums_of(dir / "w/iteration-2"), before);
    for (const auto& entry : fs::recursive_directory_iterator(dir / "w")) {
      const std::string name = entry.path().filename();
      EXPECT_FALSE(name.starts_with(".trident-saving-") || name.find(".tmp-") != std::string::npos)
          << entry.path();
    }
    for (const FoundCheckpoint& one : find_checkpoints(dir / "w")) {
      ASSERT_TRUE(one.manifest) << one.problem;
      EXPECT_EQ(damages(one.path, *one.manifest), std::vector<std::string>());
    }
    EXPECT_EQ(metrics_in(dir.path()).size(), 5u);
  }
  EXPECT_GT(failures, 20);
}

}  // namespace
}  // namespace trident::testing

// Runs that resume from a checkpoint other than the newest, and the effect on the other
// checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "engine/setup/from_config.h"
#include "run/evaluation/convert.h"
#include "run/folders/run_folder.h"
#include "run/startup/training_job.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/checkpoint_runs.h"

namespace trident::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// A run that went back and is killed before its next save resumes from the checkpoint it went back
// to, not from a later one.
TEST(GoingBack, IsRememberedByARunThatDies) {
  const TempDir uninterrupted, dir;
  Job(every_second(uninterrupted)).run();
  Job(every_second(dir)).run();
  Messages dies, messages;
  TrainerHooks hooks = dies.hooks();
  hooks.on_iteration = [](IterationMetrics& m) {
    if (m.iteration == 4) throw std::runtime_error("killed");
  };
  EXPECT_THROW(Job(every_second(dir, {"checkpoint.load=2"})).run(hooks), std::runtime_error);
  EXPECT_THAT(dies.all(),
              HasSubstr("iteration-6 is later than where this run resumes: quarantined"));
  EXPECT_EQ(read_file(dir / "w/latest"), "iteration-2\n");
  EXPECT_EQ(iterations_in(dir / "w"), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(quarantined_in(dir / "w").size(), 2u);
  EXPECT_TRUE(
      damages(dir / "w/set-aside-iteration-6", open_checkpoint(dir / "w/set-aside-iteration-6"))
          .empty());
  Job(every_second(dir)).run(messages.hooks());
  EXPECT_THAT(messages.all(), HasSubstr("resuming from " + (dir / "w/iteration-2")));
  EXPECT_EQ(metrics_in(dir.path()), metrics_in(uninterrupted.path()));
  EXPECT_EQ(sums_of(dir / "w/iteration-6"), sums_of(uninterrupted / "w/iteration-6"));
  // The test goes back once more: the names of the quarantined folders are taken.
  Job(every_second(dir, {"checkpoint.load=4"})).run(messages.hooks());
  EXPECT_TRUE(fs::exists(dir / "w/set-aside-iteration-6-2"));
  // A run that starts over replaces the run's checkpoints, but none in quarantine.
  Job(every_second(dir, {"checkpoint.resume=never", "logging.overwrite=true"})).run();
  EXPECT_EQ(quarantined_in(dir / "w").size(), 3u);
}

TEST(GoingBack, DamagedCheckpointsCauseNoRemovalOfGoodOnes) {
  const TempDir dir;
  const Overrides two{"checkpoint.save_total_limit=2"};
  train(every_second(dir, two));
  EXPECT_EQ(iterations_in(dir / "w"), (std::vector<std::int64_t>{4, 6}));
  damage(dir / "w/iteration-6/model.safetensors");
  // After the next save, the two newest checkpoints are that one and the one from which the run
  // resumed.
  train(every_second(dir, two + Overrides{"training.train_iters=8", "checkpoint.save_interval=8"}));
  EXPECT_EQ(iterations_in(dir / "w"), (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(quarantined_in(dir / "w"), (std::vector<std::string>{dir / "w/set-aside-iteration-6"}));
}

// A checkpoint that is complete but doesn't fit the run is no reason to take an older one instead.
TEST(GoingBack, CheckpointsOfAnotherStateAreNotPassedOver) {
  const TempDir dir;
  Job(every_second(dir, {"training.train_iters=4"})).run();
  const Overrides sgd{"optimizer.type=SGD", "optimizer.params.betas=null",
                      "optimizer.params.eps=null"};
  Job(every_second(dir, sgd)).run();
  try {
    Job(every_second(dir, {"training.train_iters=8"})).run();
    FAIL() << "the newest has no moments";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("iteration-6/trident/manifest.json: no tensor \"exp_avg/"));
    EXPECT_THAT(error.what(), Not(HasSubstr("no other checkpoint")));
  }
  EXPECT_EQ(iterations_in(dir / "w"), (std::vector<std::int64_t>{2, 4, 6}));
  EXPECT_TRUE(quarantined_in(dir / "w").empty());
}

TEST(GoingBack, AFullDiskKeepsNoRunFromGoingBack) {
  const TempDir dir;
  train(every_second(dir));
  TrainingInputs inputs = prepare_training(
      LoadedConfig{.config = every_second(dir, {"checkpoint.load=2", "training.train_iters=3"})});
  // A file system in which renames succeed, because they need no disk space, and every write fails.
  class Renames final : public FileSystem {
   public:
    void make_directory(const std::string&) override { throw Error("no space"); }
    std::unique_ptr<OutputFile> create(const std::string&, std::uint64_t) override {
      throw Error("no space");
    }
    std::unique_ptr<OutputFile> open(const std::string&) override { throw Error("no space"); }
    void rename(const std::string& from, const std::string& to) override {
      real_files().rename(from, to);
    }
    void remove(const std::string& path) override { real_files().remove(path); }
    void sync_directory(const std::string& path) override { real_files().sync_directory(path); }
  } renames;
  inputs.files = &renames;
  Messages messages;
  EXPECT_THROW(train(inputs, usual_device(), messages.hooks()), Error);  // the last save fails
  EXPECT_THAT(messages.all(), HasSubstr("warning: no space"));
  EXPECT_THAT(messages.all(),
              HasSubstr("iteration-6 is later than where this run resumes: quarantined"));
  EXPECT_EQ(metrics_in(dir.path()).size(), 3u);
}

TEST(GoingBack, PruningVerifiesTheCheckpointsThatStay) {
  const TempDir dir;
  train(every_second(dir));
  damage(dir / "w/iteration-6/model.safetensors");
  const Retention one{.limit = 1};
  for (const bool dry : {true, false}) {
    const Pruned pruned = prune_checkpoints(dir / "w", one, dry);
    EXPECT_EQ(pruned.removed, (std::vector<std::int64_t>{2}));
    ASSERT_EQ(pruned.damaged.size(), 1u);
    EXPECT_THAT(pruned.damaged[0], HasSubstr("iteration-6/model.safetensors"));
  }
  EXPECT_EQ(iterations_in(dir / "w"), (std::vector<std::int64_t>{4, 6}));
}

TEST(GoingBack, TheFolderOfAFinishedRunGivesItsWeightsAloneAndReportsIt) {
  const TempDir dir, other;
  train(every_second(dir));
  Messages messages;
  train(every_second(other, {"checkpoint.load=" + (dir / "w")}), usual_device(), messages.hooks());
  EXPECT_THAT(messages.all(), HasSubstr("taking the weights of " + (dir / "w") + " alone"));
  EXPECT_THAT(messages.all(), HasSubstr(dir / "w/iteration-6"));
  EXPECT_EQ(metrics_in(other.path()).size(), 6u);
}

// All ranks are in one process; each has its own checkpoints to choose from.
TEST(GoingBack, RanksThatWouldTakeDifferentCheckpointsAreRefused) {
  const TempDir dir;
  const Config config =
      run_config(dir.path(), small + Overrides{"checkpoint.save_interval=2"}, {2, 1, 1});
  train(config);
  damage(dir / "w/iteration-6/model.safetensors");
  const TrainingInputs inputs = prepare_training(config);
  ASSERT_EQ(inputs.start.checkpoints.size(), 3u);
  const auto run = [&](bool differ) {
    run_local(2, transport_options(config), [&](Transport& transport) {
      TrainingInputs own = inputs;
      auto& list = own.start.checkpoints;
      if (differ && transport.world().rank() == 1) list.erase(list.begin() + 1);
      const auto device = make_cpu_device();
      train_rank(own, transport, *device, {});
    });
  };
  EXPECT_THAT(message_of<RequestError>([&] { run(true); }),
              ::testing::AllOf(HasSubstr("different checkpoints"), HasSubstr("iteration-4"),
                               HasSubstr("rank 1 from"), HasSubstr("iteration-2")));
  run(false);
}

// A rank has an error of its own while a save is in progress: all copies of the save are made.
TEST(GoingBack, ASaveInProgressSurvivesAnError) {
  const TempDir dir;
  TrainingInputs inputs = prepare_training(run_config(
      dir.path(), small + Overrides{"checkpoint.save_interval=2", "checkpoint.asynchronous=true"},
      {2, 1, 1}));
  std::atomic<bool> thrown = false;
  HookedFiles files([&] {
    for (int i = 0; i < 2000 && !thrown; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  inputs.files = &files;
  TrainerHooks hooks;
  hooks.on_iteration = [&](IterationMetrics& m) {
    if (m.iteration != 4) return;
    thrown = true;
    throw std::out_of_range("a mistake");
  };
  EXPECT_THROW(train(inputs, usual_device(), hooks), std::out_of_range);
  const std::vector<FoundCheckpoint> found = find_checkpoints(dir / "w");
  ASSERT_EQ(found.size(), 1u);
  ASSERT_TRUE(found[0].manifest) << found[0].problem;
  EXPECT_TRUE(damages(found[0].path, *found[0].manifest).empty());
}

TEST(GoingBack, AFolderThatIsRemovedIsMadeAnew) {
  const TempDir dir;
  for (const bool empty : {false, true}) {
    Messages messages;
    TrainerHooks hooks = messages.hooks();
    hooks.on_iteration = [&](IterationMetrics& m) {
      if (m.iteration != 3) return;
      fs::remove_all(dir / "w");
      if (empty) fs::create_directory(dir / "w");
    };
    Job(every_second(dir, {"checkpoint.resume=never", "logging.overwrite=true"})).run(hooks);
    EXPECT_THAT(messages.all(), HasSubstr("was removed during the run; made again"));
    EXPECT_EQ(iterations_in(dir / "w"), (std::vector<std::int64_t>{4, 6}));
    EXPECT_TRUE(fs::exists(dir / "w/model.safetensors"));
    EXPECT_THAT(read_file(dir / "w/.trident-run"), HasSubstr("run_id"));
  }
}

TEST(GoingBack, AFolderThatReplacesTheRunsIsLeftAlone) {
  const TempDir dir;
  Messages messages;
  TrainerHooks hooks = messages.hooks();
  hooks.on_iteration = [&](IterationMetrics& m) {
    if (m.iteration != 3) return;
    fs::rename(dir / "w", dir / "moved");
    fs::create_directory(dir / "w");
    std::ofstream(dir / "w/other") << "x";
  };
  EXPECT_THAT(message_of<Error>([&] { Job(every_second(dir)).run(hooks); }),
              HasSubstr("replaced during the run"));
  EXPECT_THAT(messages.all(), HasSubstr("this folder was replaced"));
  EXPECT_THAT(messages.all(), HasSubstr("CHECKPOINT FAILED after iteration 4"));
  EXPECT_EQ(iterations_in(dir / "w"), std::vector<std::int64_t>());
}

// Another run has started and ended between the search for checkpoints and the lock.
TEST(GoingBack, CheckpointsThatCameMeanwhileAreNotPassedOver) {
  const TempDir dir;
  Job(every_second(dir)).run();
  Job late(every_second(dir, {"training.train_iters=8"}));
  remove_checkpoint(real_files(), dir / "w", 4);
  EXPECT_THAT(message_of<RequestError>([&] { late.run(); }), HasSubstr("have come or gone"));
  Job(every_second(dir, {"training.train_iters=8"})).run();
}

TEST(GoingBack, LinksInACheckpointAreNotFollowed) {
  const TempDir dir;
  train(every_second(dir));
  const std::string folder = dir / "w/iteration-6";
  for (const char* name : {"trident", "trident/manifest.json", "model.safetensors"}) {
    SCOPED_TRACE(name);
    const fs::path path = fs::path(folder) / name, away = dir / "away";
    fs::rename(path, away);
    fs::create_symlink(away, path);
    EXPECT_THAT(message_of<RequestError>([&] { open_checkpoint(folder); }),
                HasSubstr(path.string()));
    fs::remove(path);
    fs::rename(away, path);
  }
  open_checkpoint(folder);
}

}  // namespace
}  // namespace trident::testing

// The same command, given again after a kill, resumes the run, whatever its folders contained
// before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "base/files/file.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/checkpoint_runs.h"

namespace trident::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void die_at(std::int64_t iteration, const Config& config) {
  TrainerHooks hooks;
  hooks.on_iteration = [=](IterationMetrics& m) {
    if (m.iteration == iteration) throw std::runtime_error("killed");
  };
  EXPECT_THROW(Job(config).run(hooks), std::runtime_error);
}

std::string said_by(const Config& config) {
  Messages messages;
  Job(config).run(messages.hooks());
  return messages.all();
}

TEST(StartedAgain, ResumesOverTheWeightsOfTheRunBefore) {
  for (const char* overwrite : {"logging.overwrite=true", "logging.overwrite=false"}) {
    for (const bool checkpoints : {false, true}) {
      SCOPED_TRACE(overwrite + std::string(checkpoints ? " checkpoints" : ""));
      const TempDir dir;
      Job(checkpoints ? every_second(dir) : run_config(dir.path(), small)).run();
      die_at(5, every_second(dir, {"logging.overwrite=true", "checkpoint.resume=never"}));
      EXPECT_THAT(said_by(every_second(dir, {overwrite})),
                  HasSubstr("resuming from " + (dir / "w/iteration-4")));
    }
  }
}

TEST(StartedAgain, BeginsAnewBeforeItsFirstCheckpoint) {
  const TempDir dir;
  Job(every_second(dir)).run();
  die_at(1, every_second(dir, {"logging.overwrite=true", "checkpoint.resume=never"}));
  EXPECT_THAT(said_by(every_second(dir)), HasSubstr("has ended before its first checkpoint"));
}

// The copy still owns the weights that it has recognised as its own after their checkpoint is gone.
TEST(StartedAgain, ACopyThatWasContinuedResumes) {
  const TempDir dir, copy;
  Job(every_second(dir)).run();
  fs::copy(dir.path(), copy.path(), fs::copy_options::recursive);
  const Config config =
      every_second(copy, {"training.train_iters=12", "checkpoint.save_total_limit=1"});
  die_at(11, config);
  ASSERT_EQ(iterations_in(copy / "w"), (std::vector<std::int64_t>{10}));
  EXPECT_THAT(said_by(config), HasSubstr("resuming from " + (copy / "w/iteration-10")));
}

TEST(StartedAgain, ARunMayReplaceTheWeightsThatItLoads) {
  const TempDir dir;
  Job(run_config(dir.path(), small)).run();
  const Overrides more{"checkpoint.load=" + (dir / "w"), "logging.dir=" + (dir / "other")};
  EXPECT_THAT(message_of<RequestError>([&] { Job(run_config(dir.path(), small + more)); }),
              HasSubstr("set checkpoint.overwrite to replace the weights there"));
  EXPECT_THAT(
      said_by(run_config(dir.path(), small + more + Overrides{"checkpoint.overwrite=true"})),
      HasSubstr("beginning with the weights of " + (dir / "w")));
}

TEST(StartedAgain, AFolderCalledLatestIsNotReplaced) {
  const TempDir dir;
  fs::create_directories(dir / "w/latest/mine");
  EXPECT_THAT(message_of<RequestError>([&] { Job(every_second(dir)).run(); }),
              HasSubstr("latest is a directory there"));
  EXPECT_THROW(real_files().replace(dir / "w/latest", "x"), Error);
  EXPECT_TRUE(fs::exists(dir / "w/latest/mine"));
}

TEST(StartedAgain, AQuarantinedCheckpointIsNotTakenForWeightsAlone) {
  const TempDir dir, other;
  Job(every_second(dir)).run();
  Job(every_second(dir, {"checkpoint.load=4"})).run();
  const std::string folder = dir / "w/set-aside-iteration-6";
  fs::remove_all(folder + "/trident");
  EXPECT_THAT(
      message_of<RequestError>([&] { Job(every_second(other, {"checkpoint.load=" + folder})); }),
      HasSubstr("there is no complete checkpoint"));
}

}  // namespace
}  // namespace trident::testing

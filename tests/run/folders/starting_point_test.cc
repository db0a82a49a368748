// The point at which a run begins, its messages about it, and the requests that it refuses before
// it moves any file.
#include "run/folders/starting_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/crc64.h"
#include "base/files/file.h"
#include "checkpoint/manifest.h"
#include "engine/setup/registry.h"
#include "formats/hugging_face/model_directory.h"
#include "run/evaluation/convert.h"
#include "run/startup/training_job.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/checkpoint_runs.h"

namespace trident::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

void change_file(const std::string& folder, const std::string& name, const std::string& text) {
  write_file_atomic(folder + "/" + name, text);
  change_manifest(folder, [&](nlohmann::json& document) {
    document["files"][name] = {{"bytes", text.size()}, {"blocks", {hex64(crc64(text))}}};
  });
}

std::string messages_of(const Config& config) {
  Messages messages;
  Job(config).run(messages.hooks());
  return messages.all();
}

std::string refusal_of(const Config& config) {
  return message_of<RequestError>([&] { Job(config).run(); });
}

TEST(StartingPoint, ALaterFormatIsNoDamage) {
  const TempDir dir;
  Job(every_second(dir)).run();
  change_manifest(dir / "w/iteration-6", [](nlohmann::json& document) { document["version"] = 3; });
  EXPECT_THROW(open_checkpoint(dir / "w/iteration-6"), ForeignCheckpoint);
  EXPECT_THAT(refusal_of(every_second(dir)), HasSubstr("another format"));
  EXPECT_EQ(iterations_in(dir / "w"), (std::vector<std::int64_t>{2, 4, 6}));
  // A run may go back to an earlier checkpoint if checkpoint.load asks for it.
  EXPECT_THAT(messages_of(every_second(dir, {"checkpoint.load=4"})),
              HasSubstr("iteration-6 is later than where this run resumes: quarantined"));
}

TEST(StartingPoint, AnIncompleteCheckpointIsNotTakenForWeightsAlone) {
  const TempDir dir, other;
  Job(every_second(dir)).run();
  const std::string folder = dir / "w/iteration-6";
  fs::remove(folder + "/trident/manifest.json");
  const Overrides load{"checkpoint.load=" + folder};
  EXPECT_THAT(refusal_of(every_second(other, load)), HasSubstr("there is no complete checkpoint"));
  fs::remove_all(folder + "/trident");
  EXPECT_THAT(refusal_of(every_second(other, load)), HasSubstr("there is no complete checkpoint"));
  fs::rename(folder, dir / "model");
  EXPECT_THAT(messages_of(every_second(other, {"checkpoint.load=" + (dir / "model")})),
              HasSubstr("beginning with the weights of " + (dir / "model")));
}

TEST(StartingPoint, CheckpointsWithDamagedConfigFilesAreSkipped) {
  for (const char* file : {"config.json", "generation_config.json"}) {
    SCOPED_TRACE(file);
    const TempDir dir, model;
    Job(every_second(model)).run();
    write_file_atomic(model / "w/generation_config.json", R"({"eos_token_id": null})");
    fs::remove_all(model / "w/iteration-6");
    fs::remove_all(model / "w/iteration-4");
    fs::remove_all(model / "w/iteration-2");
    Job(every_second(dir, {"checkpoint.load=" + (model / "w")})).run();
    const std::string path = dir / ("w/iteration-6/" + std::string(file));
    ASSERT_TRUE(fs::exists(path));
    damage(path);
    const std::string messages = messages_of(every_second(dir));
    EXPECT_THAT(messages, HasSubstr(path));
    EXPECT_THAT(messages, HasSubstr("resuming from " + (dir / "w/iteration-4")));
    EXPECT_EQ(read_file(dir / "w/iteration-6/generation_config.json"), R"({"eos_token_id": null})");
  }
}

TEST(StartingPoint, EpochsAreThoseOfTheSamplesThatAreLeft) {
  const TempDir dir;
  const auto config = [&](const char* batch) {
    return every_second(dir, {"training.train_iters=null", "training.train_epochs=1",
                              std::string("batch.global_batch_size=") + batch});
  };
  const TrainingInputs complete = prepare_training(config("4"));
  const std::int64_t samples = complete.datasets.train->samples_per_epoch();
  ASSERT_EQ(complete.config.training.train_iters, samples / 4);
  ASSERT_GT(samples, 40);
  Messages dies;
  Job(config("4")).run(dies.hooks(4));
  const Manifest saved = *find_checkpoints(dir / "w").back().manifest;
  const TrainingInputs same = prepare_training(config("4"));
  EXPECT_EQ(same.config.training.train_iters, samples / 4);
  for (const std::string& message : same.start.messages) {
    EXPECT_THAT(message, Not(HasSubstr("differs from the checkpoint")));
  }
  EXPECT_EQ(prepare_training(config("8")).config.training.train_iters,
            saved.iteration + (samples - saved.samples) / 8);
}

// The learning-rate schedule follows the run's length, however many checkpoints were skipped.
TEST(StartingPoint, TheLearningRateFollowsTheLengthWithSkippedCheckpoints) {
  const TempDir dir;
  const auto config = [&](const char* batch) {
    return every_second(
        dir, {"training.train_iters=null", "training.train_epochs=1", "scheduler.warmup_iters=null",
              "scheduler.warmup_ratio=0.1", std::string("batch.global_batch_size=") + batch});
  };
  Messages dies;
  Job(config("8")).run(dies.hooks(5));
  const std::vector<std::int64_t> saved = iterations_in(dir / "w");
  ASSERT_GE(saved.size(), 2u);
  const std::string newest = dir / ("w/iteration-" + std::to_string(saved.back()));
  fs::copy(newest, dir / "kept", fs::copy_options::recursive);
  fs::remove_all(newest);
  const Config without = prepare_training(config("4")).config;
  fs::copy(dir / "kept", newest, fs::copy_options::recursive);
  damage(newest + "/trident/config.json");
  const Config with = prepare_training(config("4")).config;
  EXPECT_EQ(with.training.train_iters, without.training.train_iters);
  EXPECT_EQ(with.scheduler.decay_iters, without.scheduler.decay_iters);
  EXPECT_EQ(with.scheduler.warmup_iters, without.scheduler.warmup_iters);
}

TEST(StartingPoint, ReportsAnUnusedLoadAndChangedKeys) {
  const TempDir dir, other;
  const std::string text = dir / "text.txt",
                    where = dir.path() + "/" + std::string(220, '/') + "text.txt";
  std::string letters;
  for (int i = 0; i < 20'000; ++i) letters += static_cast<char>('a' + i * i % 23);
  write_file_atomic(text, letters);
  const auto config = [&](const std::string& path, const Overrides& more = {}) {
    return every_second(dir,
                        Overrides{"data.train.0.path=" + path, "training.train_iters=4"} + more);
  };
  Job(config(text)).run();
  EXPECT_THAT(messages_of(config(text)), Not(HasSubstr("differs")));
  const std::string more = messages_of(
      config(where, {"checkpoint.load=" + other.path(), "parallel.rank_order=pp-dp-tp"}));
  EXPECT_THAT(more, HasSubstr("checkpoint.load \"" + other.path() + "\" is not used"));
  EXPECT_THAT(more, HasSubstr("/parallel/rank_order"));
  EXPECT_THAT(more, HasSubstr("/data/train/0/path"));
  EXPECT_THAT(more, Not(HasSubstr("have changed since")));
  letters[7] = 'Z';
  write_file_atomic(text, letters);
  EXPECT_THAT(messages_of(config(text)), HasSubstr("training data's files have changed"));
}

TEST(StartingPoint, ReportsSourcesThatWouldHaveGivenOtherSamples) {
  const TempDir dir;
  const auto config = [&](const std::string& weight) {
    const std::string path = seeded_config("gpt2", dir.path()).data.train[0].path;
    return every_second(dir,
                        {"training.train_iters=4", "data.train=[{\"path\": \"" + path +
                                                       "\", \"weight\": 3}, {\"path\": \"" + path +
                                                       "\", \"weight\": " + weight + "}]"});
  };
  Job(config("1")).run();
  const Manifest saved = open_checkpoint(dir / "w/iteration-4");
  const auto count = [&](int i) {
    return std::get<std::int64_t>(saved.numbers.at("data.train." + std::to_string(i) + ".samples"));
  };
  EXPECT_EQ(count(0) + count(1), saved.samples);
  EXPECT_EQ(count(0), 3 * count(1));
  EXPECT_THAT(messages_of(config("1")), Not(HasSubstr("come twice")));
  EXPECT_THAT(messages_of(config("3")),
              HasSubstr("data.train.1: " + std::to_string(count(1)) +
                        " of its samples had been consumed, " + std::to_string(saved.samples / 2) +
                        " would have been"));
}

TEST(StartingPoint, AKeyThatTheCheckpointsProgramDidNotKnowIsAtItsDefault) {
  const TempDir dir;
  Job(every_second(dir)).run();
  const std::string folder = dir / "w/iteration-6";
  auto saved = nlohmann::ordered_json::parse(read_file(folder + "/trident/config.json"));
  ASSERT_TRUE(saved["model"].erase("tie_word_embeddings"));
  ASSERT_TRUE(saved["training"].erase("label_smoothing"));
  change_file(folder, "trident/config.json", saved.dump());
  EXPECT_THAT(messages_of(every_second(dir)), Not(HasSubstr("differs")));
  EXPECT_THAT(refusal_of(every_second(dir, {"model.tie_word_embeddings=false"})),
              HasSubstr("/model/tie_word_embeddings: is false, the checkpoint's model has true"));
}

TEST(StartingPoint, ANewRunRemovesNothingThatItLoads) {
  const TempDir dir;
  Job(every_second(dir)).run();
  EXPECT_THAT(refusal_of(every_second(dir, {"checkpoint.load=" + (dir / "w/iteration-4"),
                                            "checkpoint.resume=never", "logging.overwrite=true"})),
              HasSubstr("lies in checkpoint.save"));
  fs::remove(dir / "w/config.json");
  EXPECT_THAT(refusal_of(every_second(dir, {"checkpoint.load=" + (dir / "w"),
                                            "checkpoint.resume=never", "logging.overwrite=true"})),
              HasSubstr("lies in checkpoint.save"));
  EXPECT_EQ(iterations_in(dir / "w"), (std::vector<std::int64_t>{2, 4, 6}));
}

TEST(StartingPoint, WeightsOfAnotherProgramAreNotReplaced) {
  const TempDir dir, copy;
  const Overrides eight{"training.train_iters=8"};
  Job(every_second(dir)).run();
  // The copied files have other times, but they are the weights of the copy's own last checkpoint.
  fs::copy(dir.path(), copy.path(), fs::copy_options::recursive);
  Job(every_second(copy, eight)).run();
  std::ofstream(dir / "w/model.safetensors", std::ios::app) << "x";
  EXPECT_THAT(refusal_of(every_second(dir, eight)), HasSubstr("of something else"));
  Job(every_second(dir, eight + Overrides{"checkpoint.overwrite=true"})).run();
}

TEST(StartingPoint, ARunWithMovedCheckpointsDoesNotBeginAnew) {
  const TempDir dir;
  const Config config = every_second(dir, {"logging.overwrite=false"});
  const auto dies = [&] {
    TrainerHooks hooks;
    hooks.on_iteration = [](IterationMetrics& m) {
      if (m.iteration == 5) throw std::runtime_error("killed");
    };
    EXPECT_THROW(Job(config).run(hooks), std::runtime_error);
  };
  dies();
  fs::create_directory(dir / "kept");
  for (const char* name : {"iteration-2", "iteration-4"})
    fs::rename(fs::path(dir / "w") / name, fs::path(dir / "kept") / name);
  EXPECT_THAT(refusal_of(config), HasSubstr("metrics.jsonl: exists already"));
  EXPECT_EQ(metrics_in(dir.path()).size(), 4u);
}

TEST(StartingPoint, ADamagedLogIsRefusedBeforeAnyFileIsMoved) {
  const TempDir dir;
  Job(every_second(dir)).run();
  const std::string path = dir / "log/metrics.jsonl", text = read_file(path);
  write_file_atomic(path, "?\n" + text);
  EXPECT_THAT(refusal_of(every_second(dir, {"checkpoint.load=4"})),
              HasSubstr("metrics.jsonl:1: needs"));
  EXPECT_EQ(iterations_in(dir / "w"), (std::vector<std::int64_t>{2, 4, 6}));
  // Some lines of the log were lost.
  std::string first = text.substr(0, text.find('\n') + 1);
  write_file_atomic(path, first);
  EXPECT_THAT(messages_of(every_second(dir, {"training.train_iters=8"})),
              HasSubstr("lacks 5 of the iterations up to 6"));
  EXPECT_EQ(metrics_in(dir.path()).size(), 3u);
}

TEST(StartingPoint, AFolderCalledSaveNowStays) {
  const TempDir dir;
  fs::create_directories(dir / "w/save-now/mine");
  Job(every_second(dir, {"checkpoint.save_interval=6"})).run();
  EXPECT_TRUE(fs::exists(dir / "w/save-now/mine"));
  EXPECT_EQ(iterations_in(dir / "w"), (std::vector<std::int64_t>{6}));
}

TEST(StartingPoint, AMovedRunsFolderStandsForTheWeightsInIt) {
  const TempDir dir;
  const auto config = [&](int seed) {
    return run_config(
        dir.path() + "/a",
        small + Overrides{"checkpoint.save=" + (dir / "a/log/w"), "checkpoint.save_interval=3",
                          "training.seed=" + std::to_string(seed)});
  };
  Job(config(1)).run();
  EXPECT_EQ(weights_directory(dir / "a/log"), dir / "a/log/w");
  fs::rename(dir / "a", dir / "b");
  Job(config(2)).run();
  EXPECT_EQ(weights_directory(dir / "b/log"), dir / "b/log/w");
  EXPECT_EQ(checkpoints_of(dir / "b/log"), dir / "b/log/w");
  fs::rename(dir / "b/log/w", dir / "elsewhere");
  EXPECT_THAT(message_of<RequestError>([&] { weights_directory(dir / "b/log"); }),
              HasSubstr("holds none of this run here"));
}

TEST(StartingPoint, WeightsOfACheckpointAreVerifiedAndNotOverwritten) {
  const TempDir dir;
  Job(every_second(dir)).run();
  const std::string folder = dir / "w/iteration-6";
  EXPECT_THAT(message_of<RequestError>(
                  [&] { convert_weights(built_in_architectures(), dir / "w", folder, true); }),
              HasSubstr("is a run's checkpoint"));
  EXPECT_TRUE(damages(folder, open_checkpoint(folder)).empty());
  require_whole_weights(folder);
  require_whole_weights(dir / "w");
  damage(folder + "/model.safetensors");
  EXPECT_THAT(message_of<RequestError>([&] { require_whole_weights(folder); }),
              HasSubstr("are damaged"));
}

}  // namespace
}  // namespace trident::testing

// Ownership of folders: the folders into which a run may write, and its error messages otherwise.
#include "run/folders/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/hugging_face/weights_folder.h"
#include "tests/support/temp_dir.h"

namespace trident::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunFolder : public ::testing::Test {
 protected:
  static Config config(const std::string& logs, const std::string& weights) {
    Config config;
    config.logging.dir = logs;
    config.checkpoint.save = weights;
    return config;
  }
  // Every path, and the contents of every file except .trident-run.
  std::vector<std::pair<std::string, std::string>> contents() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path())) {
      const bool text = entry.is_regular_file() && entry.path().filename() != ".trident-run";
      all.emplace_back(entry.path().string(), text ? slurp(entry.path().string()) : "");
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  // Expects that the run may not write there and has written nothing; returns its error message.
  std::string refusal(const Config& config) const {
    const auto before = contents();
    const std::string checked = message_of<RequestError>([&] { check_output(config, 0); });
    const std::string made = message_of<RequestError>([&] { RunFolders(config, 0, "again"); });
    EXPECT_EQ(checked, made);
    EXPECT_EQ(contents(), before);
    return made;
  }
  // Begins and ends a run in these folders.
  static void take_folders(const Config& config) {
    const RunFolders folders(config, 0, "trident train");
  }
  // Leaves the files of a finished run, and returns its id.
  std::string run(const Config& config) const {
    const RunFolders folders(config, 0, "trident train");
    spit(config.logging.dir + "/metrics.jsonl", "{}");
    spit(config.logging.dir + "/config.json", "{}");
    NewWeights set(config.checkpoint.save);
    spit(set.path() + "/model.safetensors", "weights");
    set.sign(folders.run_id());
    spit(set.path() + "/config.json", "{}");
    set.commit();
    return folders.run_id();
  }

  TempDir dir;
};

TEST_F(RunFolder, BelongsToOneRunWhileItLivesUnderAnyNameAndInAnyRole) {
  const RunFolders held(config(dir / "a", dir / "w"), 0, "trident train first.json");
  std::filesystem::create_directory_symlink(dir / "w", dir / "link");
  const auto refused = AllOf(HasSubstr("is in use: process " + std::to_string(::getpid()) + " on "),
                             HasSubstr("(trident train first.json, run id " + held.run_id() + ")"));
  EXPECT_THAT(refusal(config(dir / "a", "")), AllOf(HasSubstr("/logging/dir"), refused));
  EXPECT_THAT(refusal(config(dir / "b", dir / "w")), AllOf(HasSubstr("/checkpoint/save"), refused));
  EXPECT_THAT(refusal(config(dir / "b", dir / "link")), refused);
  EXPECT_THAT(refusal(config(dir / "b", dir / "a/../w")), refused);
  EXPECT_THAT(refusal(config(dir / "link", "")), AllOf(HasSubstr("/logging/dir"), refused));
  EXPECT_THAT(refusal(config(dir / "b", dir / "a")), AllOf(HasSubstr("/checkpoint/save"), refused));
  Config all = config(dir / "a", dir / "w");
  all.logging.overwrite = all.checkpoint.overwrite = true;
  EXPECT_THAT(refusal(all), AllOf(HasSubstr("/logging/dir"), HasSubstr("/checkpoint/save")));
  EXPECT_THAT(message_of<RequestError>([&] { FolderLock{dir / "w"}; }), refused);
}

TEST_F(RunFolder, BelongsToOneSavingProcessAsWell) {
  std::filesystem::create_directories(dir / "w");
  {
    const FolderLock held(dir / "w");
    const auto refused = HasSubstr("is in use: another process saves weights there");
    EXPECT_THAT(message_of<RequestError>([&] { FolderLock{dir / "w"}; }), refused);
    EXPECT_THAT(refusal(config(dir / "a", dir / "w")), refused);
    EXPECT_THAT(dir.names(), ElementsAre("w"));
  }
  FolderLock lock(dir / "w");
}

// A run doesn't own weights that another program put in the place of its own. A run that has saved
// nothing doesn't own the earlier weights either.
TEST_F(RunFolder, RecordsTheRunThatSavedItsWeights) {
  const std::string id = run(config(dir / "a", dir / "w"));
  Config same = config(dir / "a", dir / "w");
  same.logging.overwrite = true;
  check_output(same, 0);
  {
    NewWeights set(dir / "w");
    spit(set.path() + "/model.safetensors", "other weights");
    spit(set.path() + "/config.json", "{}");
    set.commit();
  }
  EXPECT_THAT(refusal(same), AllOf(HasSubstr("/checkpoint/save"), HasSubstr("of something else")));
  same.checkpoint.overwrite = true;
  { const RunFolders dies_before_it_saves(same, 0, "trident train"); }
  same.checkpoint.overwrite = false;
  EXPECT_THAT(refusal(same), AllOf(HasSubstr("/checkpoint/save"), HasSubstr("of something else")));
  same.checkpoint.overwrite = true;
  EXPECT_NE(run(same), id);
  same.checkpoint.overwrite = false;
  check_output(same, 0);
  // Later runs in the same folder that end before they save keep the earlier run's ownership.
  for (int again = 0; again < 100; ++again) {
    const RunFolders dies(same, 0, "trident train" + std::string(20000, 'x'));
  }
  check_output(same, 0);
}

// A run's weights are replaced together with its logs. A run without logging.overwrite leaves them,
// even if the logs were removed. Weights that another program copies over them are not the run's
// own.
TEST_F(RunFolder, ReplacesItsOwnWeightsOnlyWhereItWasAskedAndTheyAreItsOwn) {
  run(config(dir / "a", dir / "w"));
  const auto old = slurp(dir / "w/model.safetensors");
  for (const char* name : {"metrics.jsonl", "config.json"}) {
    std::filesystem::remove(dir / (std::string("a/") + name));
  }
  EXPECT_THAT(refusal(config(dir / "a", dir / "w")), HasSubstr("holds model.safetensors of run "));
  Config same = config(dir / "a", dir / "w");
  same.logging.overwrite = true;
  check_output(same, 0);
  spit(dir / "w/model.safetensors", old);  // the same bytes, written at another time
  EXPECT_THAT(refusal(same), HasSubstr("of something else"));
  run(config(dir / "b", dir / "v"));
  same = config(dir / "b", dir / "v");
  same.logging.overwrite = true;
  spit(dir / "v/model.safetensors.index.json", "{}");  // next to the run's files
  EXPECT_THAT(refusal(same), HasSubstr("of something else"));
}

TEST_F(RunFolder, ReplacesNoFileThatHasTheNameOfItsLogs) {
  for (const char* name : {"report.html", "timeline.svg", "trace.json", "config.user.json",
                           "config.json", "gradients-7.safetensors"}) {
    const TempDir at;
    spit(at / name, "mine");
    EXPECT_THAT(refusal(config(at.path(), "")),
                HasSubstr("holds " + std::string(name) + ", but no metrics.jsonl"));
    Config all = config(at.path(), "");
    all.logging.overwrite = true;
    check_output(all, 0);
  }
}

TEST_F(RunFolder, FindsThatItWasRemovedOrReplaced) {
  for (const char* folder : {"a", "w"}) {
    const RunFolders held(config(dir / "a", dir / "w"), 0, "trident train");
    held.require_held();
    std::filesystem::remove_all(dir / folder);
    const auto lost = AllOf(HasSubstr(dir / folder), HasSubstr("was removed or replaced"));
    EXPECT_THAT(message_of<Error>([&] { held.require_held(); }), lost);
    const RunFolders other(config(dir / folder, ""), 0, "trident train");
    EXPECT_THAT(message_of<Error>([&] { held.require_held(); }), lost);
    other.require_held();
  }
}

TEST_F(RunFolder, IsSignedOverALongerText) {
  run(config(dir / "a", dir / "w"));
  Config same = config(dir / "a", dir / "w");
  same.logging.overwrite = true;
  const std::string file = dir / "a/.trident-run";
  spit(file, slurp(file) + std::string(1000, ' '));  // longer than the new text
  check_output(same, 0);
  take_folders(same);
  EXPECT_LT(std::filesystem::file_size(file), 1000U);
  check_output(same, 0);
  std::filesystem::resize_file(file, std::uintmax_t{6} << 40);  // larger than any memory
  same.checkpoint.overwrite = true;
  take_folders(same);
  EXPECT_LT(std::filesystem::file_size(file), 1000U);
}

// The check comes before the run, not when the weights are moved there at its end.
TEST_F(RunFolder, HasPlaceForEachFileOfTheWeights) {
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "model.safetensors",
        "model.safetensors.index.json", "model-00001-of-00002.safetensors", ".trident-weights"}) {
    const TempDir at;
    std::filesystem::create_directories(at / "w" + "/" + name);
    Config all = config(dir / "a", at / "w");
    all.checkpoint.overwrite = true;
    EXPECT_THAT(refusal(all), AllOf(HasSubstr("/checkpoint/save"), HasSubstr(name),
                                    HasSubstr("is a directory, but weights saved there")));
  }
  const TempDir dead;  // the unfinished save of a dead run is moved first
  std::filesystem::create_directories(dead / "foo.safetensors");
  std::filesystem::create_directory(dead / ".trident-saving");
  spit(dead / ".trident-saving/foo.safetensors", "");
  EXPECT_THAT(refusal(config(dir / "a", dead.path())),
              HasSubstr("foo.safetensors: is a directory"));
  const TempDir at;
  spit(at / ".trident-saving", "a file");
  EXPECT_THAT(refusal(config(dir / "a", at.path())), HasSubstr("is not a folder that a save made"));
  for (const char* folder : {"w/.trident-saving", "w/.trident-saving/deep"}) {
    EXPECT_THAT(refusal(config(dir / "a", dir / folder)),
                AllOf(HasSubstr("/checkpoint/save"), HasSubstr("is the name of a folder that")));
    EXPECT_THAT(refusal(config(dir / folder, "")),
                AllOf(HasSubstr("/logging/dir"), HasSubstr("is the name of a folder that")));
  }
}

// The lock belongs to a folder whose name was removed and created again by another program.
TEST_F(RunFolder, IsLockedItselfAndNotByItsName) {
  auto held = std::make_unique<RunFolders>(config(dir / "a", ""), 0, "trident train");
  std::filesystem::remove(dir / "a/.trident-run");
  // The folder itself is locked.
  EXPECT_THAT(refusal(config(dir / "a", "")), HasSubstr("is in use"));
  std::filesystem::remove(dir / "a");
  RunFolders(config(dir / "a", ""), 0, "trident train");
}

TEST_F(RunFolder, HasLogFilesThatAreFiles) {
  std::filesystem::create_directories(dir / "a");
  ASSERT_EQ(::mkfifo((dir / "a/metrics.jsonl").c_str(), 0600), 0);
  Config all = config(dir / "a", "");
  all.logging.overwrite = true;
  EXPECT_THAT(refusal(all), HasSubstr("metrics.jsonl: not a regular file"));
}

// A link or any other file may lie in the place of the file that identifies the run.
TEST_F(RunFolder, WritesThroughNoLinkAndTakesNoOtherFileForItsOwn) {
  std::filesystem::create_directories(dir / "a");
  const std::string file = dir / "a/.trident-run";
  spit(dir / "victim", "a file of the user's");
  std::filesystem::create_symlink(dir / "victim", file);
  EXPECT_THAT(refusal(config(dir / "a", "")), HasSubstr(".trident-run: is a link; remove it"));
  EXPECT_EQ(slurp(dir / "victim"), "a file of the user's");
  std::filesystem::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(refusal(config(dir / "a", "")), HasSubstr(".trident-run: not a regular file"));
  std::filesystem::remove(file);
  for (const char* text :
       {R"({"run_id": null})", R"({"run_id": 7})", R"({"run_id": ["a"]})", "[]", "\xff", "",
        R"({"run_id": "x", "pid": {}})", R"({"run_id": "x", "earlier": [7, "", {}]})"}) {
    SCOPED_TRACE(text);
    spit(file, text);
    check_output(config(dir / "a", dir / "w"), 0);
    take_folders(config(dir / "a", dir / "w"));
  }
}

TEST_F(RunFolder, IsFreeWhenTheProcessThatHadItHasDied) {
  const pid_t child = ::fork();
  if (child == 0) {
    const RunFolders held(config(dir / "a", dir / "w"), 0, "trident train");
    spit(dir / "w/model.safetensors.tmp-1-0", "half a file");
    std::filesystem::create_directory(dir / "w/.trident-saving");
    spit(dir / "w/.trident-saving/model.safetensors", "half a set");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  take_folders(config(dir / "a", dir / "w"));
  EXPECT_FALSE(std::filesystem::exists(dir / "w/model.safetensors.tmp-1-0"));
  EXPECT_FALSE(std::filesystem::exists(dir / "w/.trident-saving"));
}

TEST_F(RunFolder, KeepsItsWeightsFromOtherRunsUnlessTheyAreToBeReplaced) {
  const std::string id = run(config(dir / "a", dir / "w"));
  const auto owner = nlohmann::json::parse(slurp(dir / "a/.trident-run"));
  EXPECT_EQ(owner.at("run_id"), id);
  EXPECT_EQ(owner.at("pid"), ::getpid());
  EXPECT_EQ(owner, nlohmann::json::parse(slurp(dir / "w/.trident-run")));

  Config other = config(dir / "b", dir / "w");
  EXPECT_THAT(refusal(other), AllOf(HasSubstr("/checkpoint/save"), HasSubstr("of run " + id),
                                    HasSubstr("checkpoint.overwrite")));
  other.logging.overwrite = true;  // for another folder
  EXPECT_THAT(refusal(other), HasSubstr("of run " + id));
  other.checkpoint.overwrite = true;
  check_output(other, 0);

  // The same run once more.
  Config same = config(dir / "a", dir / "w");
  EXPECT_THAT(refusal(same), HasSubstr("metrics.jsonl: exists already"));
  same.logging.overwrite = true;
  EXPECT_NE(run(same), id);
  // After another run has replaced the weights, they are no longer the first run's own.
  run(other);
  EXPECT_THAT(refusal(same), HasSubstr("/checkpoint/save"));
}

TEST_F(RunFolder, KeepsFilesThatNoRunHasWritten) {
  std::filesystem::create_directories(dir / "hf");
  for (const char* file : {"model.safetensors", "model.safetensors.index.json", "config.json",
                           "tokenizer.json", "generation_config.json", "merges.txt"}) {
    spit((dir / "hf/") + file, "x");
    EXPECT_THAT(refusal(config(dir / "a", dir / "hf")),
                HasSubstr("holds " + std::string(file) + " of something else"));
    if (std::string(file).starts_with("model")) {
      Config logs = config(dir / "hf", "");
      logs.logging.overwrite = true;
      EXPECT_THAT(refusal(logs), HasSubstr("holds the weights of a model"));
    }
    std::filesystem::remove((dir / "hf/") + file);
  }
  spit(dir / "hf/config.json", "my own");
  EXPECT_THAT(refusal(config(dir / "hf", "")), HasSubstr("holds config.json, but no metrics"));
}

TEST_F(RunFolder, HasOneRole) {
  run(config(dir / "a", dir / "w"));
  Config crossed = config(dir / "b", dir / "a");
  crossed.logging.overwrite = crossed.checkpoint.overwrite = true;
  EXPECT_THAT(refusal(crossed), HasSubstr("holds the log files of a run"));
  std::filesystem::create_directories(dir / "c");
  std::filesystem::create_directory_symlink(dir / "c", dir / "d");
  EXPECT_THAT(refusal(config(dir / "c", dir / "d")), HasSubstr("is logging.dir"));
  EXPECT_THAT(refusal(config(dir / "new/x", dir / "new/y/../x")), HasSubstr("is logging.dir"));
}

TEST_F(RunFolder, HasRoomForTheWeights) {
  const std::int64_t much = std::int64_t{1} << 60;
  EXPECT_THAT(message_of<RequestError>([&] { check_output(config(dir / "a", dir / "w"), much); }),
              AllOf(HasSubstr("/checkpoint/save"),
                    HasSubstr("the weights take 1048576.00 TiB, but its file system has "),
                    HasSubstr("iB free")));
  check_output(config(dir / "a", ""), much);
}

}  // namespace
}  // namespace trident::testing

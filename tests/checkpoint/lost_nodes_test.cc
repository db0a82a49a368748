// Starts that find fewer files on the nodes than were saved, or files of other runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "base/error.h"
#include "base/files/file.h"
#include "run/folders/locked_folder.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/node_runs.h"

namespace trident::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const Overrides three_durable{"checkpoint.save_interval=3"};
const std::set<std::string> both_have_four{"node-0/iteration-4", "node-1/iteration-4"};

TEST(LostNodes, ARunWithoutOtherCheckpointsIsRefusedUntilTheyReturn) {
  const TempDir dir;
  killed_at(6, on_nodes(dir));
  fs::rename(dir / "nodes", dir / "away");
  EXPECT_THAT(
      message_of<RequestError>([&] { run_to_end(on_nodes(dir)); }),
      HasSubstr("the run has saved on its nodes, and nothing of that is in \"" + (dir / "nodes")));
  EXPECT_EQ(metrics_in(dir.path()).size(), 5u);
  fs::remove_all(dir / "nodes");
  fs::rename(dir / "away", dir / "nodes");
  fs::remove(dir / "w/.trident-run");  // the list of starts identifies the run
  EXPECT_THAT(killed_at(6, on_nodes(dir)), HasSubstr("node-*/iteration-4: iteration 4"));
}

TEST(LostNodes, AResumedRunReportsThatTheyAreMissing) {
  const TempDir dir;
  killed_at(6, on_nodes(dir, three_durable));
  fs::remove_all(dir / "nodes");
  Messages messages;
  run_to_end(on_nodes(dir, three_durable), messages.hooks());
  EXPECT_THAT(messages.all(), HasSubstr("nothing of that is in \"" + (dir / "nodes") +
                                        "\": resuming without them"));
  EXPECT_THAT(messages.all(), HasSubstr("resuming from " + (dir / "w/iteration-3")));
  // At the end of the run nothing is missing any more.
  Messages again;
  run_to_end(on_nodes(dir, {"training.train_iters=8"}), again.hooks());
  EXPECT_THAT(again.all(), ::testing::Not(HasSubstr("on its nodes")));
}

TEST(LostNodes, AStartThatFailsRemovesNothing) {
  const TempDir dir;
  const Config config = on_nodes(dir, three_durable + Overrides{"checkpoint.local.replicas=0"});
  killed_at(6, config);
  const std::string node = node_run_folder(dir) + "/node-1", list = dir / "w/.trident-starts";
  const std::string starts = read_file(list);
  fs::rename(node, dir / "away");
  write_file_atomic(node, "a file");
  EXPECT_THAT(message_of<Error>([&] { run_to_end(config); }),
              HasSubstr("not a directory that belongs to this user"));
  fs::remove(node);
  fs::rename(dir / "away", node);
  EXPECT_EQ(kept_by_nodes(dir), both_have_four);
  EXPECT_EQ(read_file(list), starts);
  EXPECT_THAT(killed_at(6, config), HasSubstr("node-*/iteration-4: iteration 4"));
}

// The first run to start owns the files there; the other run never touches them.
TEST(LostNodes, ACopyInThePlaceOfItsFolderIsAnotherRun) {
  for (const char* first : {"a", "kept"}) {
    SCOPED_TRACE(first);
    const std::string second = first == std::string("a") ? "kept" : "a";
    const TempDir dir;
    const auto config = [&](const std::string& name) {
      return on_nodes(dir, three_durable + Overrides{"checkpoint.save=" + (dir / name) + "/w",
                                                     "logging.dir=" + (dir / name) + "/log"});
    };
    killed_at(6, config("a"));
    fs::rename(dir / "a", dir / "kept");
    fs::copy(dir / "kept", dir / "a", fs::copy_options::recursive);
    EXPECT_THAT(killed_at(6, config(first)), HasSubstr("node-*/iteration-4: iteration 4"));
    EXPECT_THAT(killed_at(6, config(second)),
                HasSubstr("resuming from " + (dir / second) + "/w/iteration-3"));
    run_to_end(config(second));  // the run ends, and removes its files from the nodes
    EXPECT_THAT(killed_at(6, config(first)), HasSubstr("node-*/iteration-4: iteration 4"));
  }
}

TEST(LostNodes, ASaveThatDiedWasNeverThere) {
  const TempDir dir;
  const Config config =
      on_nodes(dir, {"checkpoint.local.replicas=0", "checkpoint.local.interval=4"});
  killed_at(6, config);
  const std::string node = node_run_folder(dir) + "/node-1", list = dir / "w/.trident-starts";
  std::string starts = read_file(list);
  const std::string note = ",\"on_nodes\":true";
  ASSERT_THAT(starts, HasSubstr(note));
  write_file_atomic(list, starts.erase(starts.find(note), note.size()));
  fs::rename(node + "/iteration-4", node + "/.trident-saving-iteration-4");
  EXPECT_THAT(killed_at(6, config), HasSubstr("has ended before its first checkpoint"));
  EXPECT_EQ(kept_by_nodes(dir), both_have_four);
}

TEST(LostNodes, ACheckpointOfALaterFormatStopsOnlyOlderOnes) {
  for (const int durable : {3, 5}) {
    SCOPED_TRACE(durable);
    const TempDir dir;
    const Config config = on_nodes(dir, {"checkpoint.save_interval=" + std::to_string(durable)});
    killed_at(6, config);
    for (const std::string& one : both_have_four) {
      change_manifest(node_run_folder(dir) + "/" + one,
                      [](nlohmann::json& document) { document["version"] = 3; });
    }
    if (durable == 5) {
      EXPECT_THAT(killed_at(6, config), HasSubstr("resuming from " + (dir / "w/iteration-5")));
    } else {
      EXPECT_THAT(message_of<RequestError>([&] { run_to_end(config); }),
                  HasSubstr("another format"));
      EXPECT_EQ(kept_by_nodes(dir), both_have_four);
    }
  }
}

TEST(LostNodes, ASecondStartAtTheSameTimeIsRefused) {
  const TempDir dir;
  killed_at(6, on_nodes(dir));
  StartLock hold(dir / "w");
  EXPECT_THAT(message_of<Error>([&] { run_to_end(on_nodes(dir)); }),
              HasSubstr("another start of the run there is under way"));
  hold.release();
  EXPECT_FALSE(fs::exists(dir / "w/.trident-starting"));
  killed_at(6, on_nodes(dir));
  EXPECT_FALSE(fs::exists(dir / "w/.trident-starting"));
}

}  // namespace
}  // namespace trident::testing

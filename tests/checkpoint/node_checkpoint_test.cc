// Checkpoints on the nodes themselves, and resuming from them when nodes are lost.
#include "checkpoint/node_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/starts.h"
#include "run/startup/training_job.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/node_runs.h"

namespace trident::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

void expect_as_uninterrupted(const TempDir& dir, const TempDir& uninterrupted) {
  EXPECT_EQ(metrics_in(dir.path()), metrics_in(uninterrupted.path()));
  EXPECT_EQ(sums_of(dir / "w/iteration-7"), sums_of(uninterrupted / "w/iteration-7"));
}

struct NodeCase {
  const char* name;
  Overrides more = {};
  Layout layout = {.data = 2, .tensor = 2};
};

class NodeCheckpointIn : public ::testing::TestWithParam<NodeCase> {};

// Whichever node is lost, the run resumes from the newest checkpoint on the nodes, bitwise
// identical.
TEST_P(NodeCheckpointIn, SurvivesTheLossOfANode) {
  const NodeCase& how = GetParam();
  const TempDir uninterrupted;
  run_to_end(on_nodes(uninterrupted, how.more, how.layout));
  for (const std::string lost : {"", "node-0", "node-1"}) {
    SCOPED_TRACE("lost: " + lost);
    const TempDir dir;
    const Config config = on_nodes(dir, how.more, how.layout);
    killed_at(6, config);
    EXPECT_EQ(kept_by_nodes(dir),
              (std::set<std::string>{"node-0/iteration-4", "node-1/iteration-4"}));
    EXPECT_TRUE(find_checkpoints(dir / "w").empty());
    if (!lost.empty()) fs::remove_all(fs::path(node_run_folder(dir)) / lost);
    Messages messages;
    run_to_end(config, messages.hooks());
    EXPECT_THAT(messages.all(), HasSubstr("node-*/iteration-4: iteration 4 of run"));
    expect_as_uninterrupted(dir, uninterrupted);
    EXPECT_TRUE(fs::is_empty(dir / "nodes"));  // the run has ended
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, NodeCheckpointIn,
    ::testing::Values(
        NodeCase{"dp2_tp2"}, NodeCase{"asynchronous", {"checkpoint.asynchronous=true"}},
        NodeCase{"zero1_bf16", {"zero_optimization.stage=1", "precision.dtype=bf16"}},
        NodeCase{"zero3", {"zero_optimization.stage=3"}, {.data = 4}},
        NodeCase{"adafactor",
                 {"optimizer.type=Adafactor", "optimizer.params.betas=null",
                  "optimizer.params.eps=null", "zero_optimization.stage=1"}},
        NodeCase{
            "pp2", {"batch.micro_batch_size=1", "model.num_layers=2"}, {.data = 2, .pipeline = 2}},
        NodeCase{"pipedream_asynchronous",
                 {"pipeline.schedule=pipedream", "gradient_clipping=0",
                  "model.tie_word_embeddings=false", "training.on_non_finite=stop",
                  "checkpoint.asynchronous=true", "batch.micro_batch_size=1", "model.num_layers=2"},
                 {.data = 2, .pipeline = 2}},
        NodeCase{"three_nodes",
                 {"runtime.ranks_per_node=1", "checkpoint.local.replicas=2"},
                 {.tensor = 2}}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(NodeCheckpoint, ResumesInAnotherLayout) {
  const TempDir dir;
  killed_at(6, on_nodes(dir, {"zero_optimization.stage=1", "model.num_layers=2"}));
  fs::remove_all(fs::path(node_run_folder(dir)) / "node-1");
  Messages messages;
  run_to_end(on_nodes(dir, {"runtime.ranks_per_node=1", "model.num_layers=2"}, {.pipeline = 2}),
             messages.hooks());
  EXPECT_THAT(messages.all(), HasSubstr("node-*/iteration-4: iteration 4 of run"));
  EXPECT_EQ(metrics_in(dir.path()).size(), 7u);
}

// The lost node may come back, so a start removes the other nodes' files only on request.
TEST(NodeCheckpoint, WithoutCopiesItIsLostWithANode) {
  const TempDir dir;
  const Config config = on_nodes(dir, {"checkpoint.local.replicas=0"});
  killed_at(6, config);
  fs::remove_all(fs::path(node_run_folder(dir)) / "node-1");
  const auto kept_there = kept_by_nodes(dir);
  EXPECT_THAT(message_of<RequestError>([&] { run_to_end(config); }),
              HasSubstr("iteration 4 on the nodes: 4 of 6 files are there and undamaged"));
  EXPECT_EQ(kept_by_nodes(dir), kept_there);
  killed_at(2, on_nodes(dir, {"checkpoint.local.replicas=0", "checkpoint.resume=never",
                              "logging.overwrite=true"}));
}

TEST(NodeCheckpoint, TheNewestValidOneOfBothKindsIsTaken) {
  const TempDir uninterrupted, dir;
  const Overrides three{"checkpoint.save_interval=3"};
  run_to_end(on_nodes(uninterrupted, three));
  killed_at(5, on_nodes(dir, three));  // 2 is on the nodes, 3 in the folder, 4 on the nodes
  // The copy on the other node repairs one bad byte.
  const std::string part = "/iteration-4/trident/part-00001-of-00004.safetensors";
  damage(node_run_folder(dir) + "/node-0" + part);
  EXPECT_THAT(killed_at(6, on_nodes(dir, three)), HasSubstr("node-*/iteration-4: iteration 4"));
  damage(node_run_folder(dir) + "/node-1" + part);
  Messages messages;
  run_to_end(on_nodes(dir, three), messages.hooks());
  EXPECT_THAT(messages.all(), HasSubstr("resuming from " + dir / "w/iteration-3: iteration 3"));
  EXPECT_THAT(messages.all(), HasSubstr("iteration 4 on the nodes: "));
  EXPECT_THAT(messages.all(), HasSubstr(part + ": bytes 0 to "));
  expect_as_uninterrupted(dir, uninterrupted);
}

// A run that goes back removes the checkpoints that are later than the one from which it resumes.
TEST(NodeCheckpoint, ARunThatGoesBackLeavesNoLaterOnes) {
  const TempDir dir;
  const Overrides three{"checkpoint.save_interval=3"};
  killed_at(6, on_nodes(dir, three));
  EXPECT_EQ(kept_by_nodes(dir),
            (std::set<std::string>{"node-0/iteration-4", "node-1/iteration-4"}));
  killed_at(4, on_nodes(dir, three + Overrides{"checkpoint.load=3"}));
  EXPECT_TRUE(kept_by_nodes(dir).empty());
  EXPECT_THAT(killed_at(5, on_nodes(dir, three)), HasSubstr("w/iteration-3: iteration 3"));
}

// Nodes that were away while the run continued or went back return with their old files.
TEST(NodeCheckpoint, OfAnAbandonedBranchIsNotTaken) {
  const TempDir uninterrupted, dir;
  const Overrides three{"checkpoint.save_interval=3"};
  run_to_end(on_nodes(uninterrupted, three));
  killed_at(6, on_nodes(dir, three));  // 3 is saved in the folder, 4 on the nodes
  const std::string folder = node_run_folder(dir);
  fs::copy(folder, dir / "away", fs::copy_options::recursive);
  const auto comes_back = [&] {
    fs::remove_all(folder);
    fs::copy(dir / "away", folder, fs::copy_options::recursive);
    for (const char* node : {"", "/node-0", "/node-1"}) {
      fs::permissions(folder + node, fs::perms::owner_all);
    }
  };
  // The run goes back behind 4 and uses another node folder: 4 belongs to an abandoned branch.
  killed_at(5, on_nodes(dir, three + Overrides{"checkpoint.load=3",
                                               "checkpoint.local.dir=" + dir / "elsewhere",
                                               "checkpoint.local.interval=100"}));
  comes_back();
  EXPECT_THAT(killed_at(5, on_nodes(dir, three)), HasSubstr("w/iteration-3: iteration 3"));
  // The run has resumed from 4 and continued: 4 is an ancestor of the current state, and older than
  // 6.
  comes_back();
  const std::string start = read_file(dir / "w/.trident-starts");
  EXPECT_EQ(read_starts(dir / "w", fs::path(folder).filename().string().substr(0, 16)).list.size(),
            3u)
      << start;
  killed_at(7, on_nodes(dir, three + Overrides{"checkpoint.local.dir=" + dir / "elsewhere",
                                               "checkpoint.local.interval=100"}));
  comes_back();
  Messages messages;
  run_to_end(on_nodes(dir, three), messages.hooks());
  EXPECT_THAT(messages.all(), HasSubstr("w/iteration-6: iteration 6"));
  expect_as_uninterrupted(dir, uninterrupted);
}

// Without the list of starts the run can't know whether the nodes' checkpoints are its ancestors.
TEST(NodeCheckpoint, WithoutTheListOfStartsNoneIsTakenAndNoneIsRemoved) {
  const TempDir uninterrupted, dir;
  const Overrides three{"checkpoint.save_interval=3"};
  run_to_end(on_nodes(uninterrupted, three));
  killed_at(6, on_nodes(dir, three));  // 3 is saved in the folder, 4 on the nodes
  const std::string list = dir / "w/.trident-starts", text = read_file(list);
  const auto refusal = [&] { return message_of<Error>([&] { run_to_end(on_nodes(dir, three)); }); };
  fs::remove(list);
  EXPECT_THAT(refusal(), HasSubstr("/iteration-4 is of a start that"));
  write_file_atomic(list, "?");
  EXPECT_THAT(refusal(), HasSubstr(".trident-starts: it lists which"));
  fs::remove(list);
  fs::create_directory(list);
  EXPECT_THAT(refusal(), HasSubstr(".trident-starts: it lists which"));
  EXPECT_EQ(kept_by_nodes(dir),
            (std::set<std::string>{"node-0/iteration-4", "node-1/iteration-4"}));
  fs::remove(list);
  write_file_atomic(list, text);
  Messages messages;
  run_to_end(on_nodes(dir, three), messages.hooks());
  EXPECT_THAT(messages.all(), HasSubstr("node-*/iteration-4: iteration 4"));
  expect_as_uninterrupted(dir, uninterrupted);
}

TEST(NodeCheckpoint, IsFoundWhereTheRunsFileWasLost) {
  const TempDir dir;
  const Overrides three{"checkpoint.save_interval=3"};
  killed_at(6, on_nodes(dir, three));  // 3 is saved in the folder, 4 on the nodes
  write_file_atomic(dir / "w/.trident-run", "");
  EXPECT_THAT(killed_at(6, on_nodes(dir, three)), HasSubstr("node-*/iteration-4: iteration 4"));
  fs::remove(dir / "w/.trident-run");
  EXPECT_THAT(killed_at(6, on_nodes(dir, three)), HasSubstr("node-*/iteration-4: iteration 4"));
}

TEST(NodeCheckpoint, WithADamagedManifestIsReported) {
  const TempDir dir;
  const Overrides three{"checkpoint.save_interval=3"};
  killed_at(6, on_nodes(dir, three));
  for (const char* node : {"/node-0", "/node-1"}) {
    damage(node_run_folder(dir) + node + "/iteration-4/trident/manifest.json");
  }
  const std::string messages = killed_at(6, on_nodes(dir, three));
  EXPECT_THAT(messages, HasSubstr("can't resume from a checkpoint: iteration 4 on the nodes: "));
  EXPECT_THAT(messages, HasSubstr("resuming from " + dir / "w/iteration-3: iteration 3"));
}

// A copied run is independent of the original, and a moved run keeps its checkpoints on the nodes.
TEST(NodeCheckpoint, ACopyHasAFolderOfItsOwn) {
  const TempDir dir;
  const auto config = [&](const std::string& name) {
    return on_nodes(dir, {"checkpoint.save_interval=3", "checkpoint.save=" + dir / name + "/w",
                          "logging.dir=" + dir / name + "/log"});
  };
  killed_at(6, config("a"));
  fs::copy(dir / "a", dir / "b", fs::copy_options::recursive);
  EXPECT_THAT(killed_at(6, config("b")), HasSubstr("resuming from " + dir / "b/w/iteration-3"));
  run_to_end(config("b"));  // the run ends, and removes its files from the nodes
  EXPECT_THAT(killed_at(6, config("a")), HasSubstr("node-*/iteration-4: iteration 4"));
  fs::rename(dir / "a", dir / "c");
  EXPECT_THAT(killed_at(6, config("c")), HasSubstr("node-*/iteration-4: iteration 4"));
}

TEST(Starts, ASaveBeyondALaterStartIsNoAncestor) {
  const Starts starts{"run", {{"a", 0}, {"b", 10}, {"c", 6}, {"d", 8}}};
  EXPECT_TRUE(starts.leads_here("d", 100));
  EXPECT_TRUE(starts.leads_here("c", 8));
  EXPECT_FALSE(starts.leads_here("c", 9));
  EXPECT_TRUE(starts.leads_here("b", 6));
  EXPECT_FALSE(starts.leads_here("b", 7));  // 8 of d belongs to c's branch
  EXPECT_TRUE(starts.leads_here("a", 6));
  EXPECT_FALSE(starts.leads_here("a", 10));
  EXPECT_FALSE(starts.leads_here("e", 0));
}

// A run that starts over also removes all node checkpoints of the run before it.
TEST(NodeCheckpoint, OfAReplacedRunIsRemoved) {
  const TempDir dir;
  killed_at(6, on_nodes(dir));
  const std::string before = node_run_folder(dir);
  killed_at(2, on_nodes(dir, {"checkpoint.resume=never", "logging.overwrite=true"}));
  EXPECT_FALSE(fs::exists(before));
  EXPECT_TRUE(fs::exists(node_run_folder(dir)));
}

TEST(NodeCheckpoint, OneThatFailsLeavesTheOneBefore) {
  const TempDir dir;
  const Config config = on_nodes(dir);
  const Launch launch;
  TrainingJob job = prepare_job(LoadedConfig{.config = config}, launch);
  std::atomic<bool> fails = false;
  HookedFiles files([&] {
    if (fails) throw Error("the memory is full");
  });
  job.inputs.files = &files;
  Messages messages;
  TrainerHooks hooks = messages.hooks();
  hooks.on_iteration = [&](IterationMetrics& m) {
    fails = m.iteration == 4;
    if (m.iteration == 6) throw std::runtime_error("killed");
  };
  EXPECT_THROW(run_job(job, {.trainer = hooks}), std::runtime_error);
  EXPECT_THAT(messages.all(), HasSubstr("CHECKPOINT ON THE NODES FAILED after iteration 4: rank "));
  EXPECT_THAT(messages.all(), HasSubstr("the memory is full; the one of iteration 2 stays"));
  EXPECT_EQ(kept_by_nodes(dir),
            (std::set<std::string>{"node-0/iteration-2", "node-1/iteration-2"}));
}

TEST(NodeCheckpoint, OneNodeAloneHasAnOrdinaryCheckpoint) {
  const TempDir dir;
  EXPECT_THAT(killed_at(6, on_nodes(dir, {"runtime.ranks_per_node=4"})),
              HasSubstr("/checkpoint/local/replicas: 1, but there is one node alone"));
  const std::string folder = node_run_folder(dir) + "/node-0/iteration-4";
  EXPECT_TRUE(damages(folder, open_checkpoint(folder)).empty());
}

TEST(NodeCheckpoint, AFolderThatIsNotTheUsersOwnIsRefused) {
  const TempDir dir;
  const Config config = on_nodes(dir, {"checkpoint.save_interval=3"});
  killed_at(6, config);
  const std::string own = node_run_folder(dir);
  fs::rename(own, dir / "elsewhere");
  fs::create_directory_symlink(dir / "elsewhere", own);
  Messages messages;
  try {
    run_to_end(config, messages.hooks());
    FAIL() << "it has run";
  } catch (const Error& error) {
    EXPECT_THAT(
        error.what(),
        AllOf(
            HasSubstr("/checkpoint/local/dir: "), HasSubstr(own),
            HasSubstr(
                "not a directory that belongs to this user and that no other user may write to")));
  }
}

TEST(NodeRole, CopiesLieOnOtherNodesAndAreShared) {
  // Three nodes with 2, 3 and 1 ranks.
  const Nodes nodes = Nodes::found({0, 0, 1, 1, 1, 2});
  for (const std::int64_t replicas : {0, 1, 2, 5}) {
    std::vector<NodeRole> roles;
    for (int rank = 0; rank < 6; ++rank) roles.push_back(node_role(nodes, rank, replicas));
    for (int rank = 0; rank < 6; ++rank) {
      const NodeRole& role = roles[static_cast<std::size_t>(rank)];
      EXPECT_EQ(role.node, nodes.of(rank));
      EXPECT_EQ(role.leads, nodes.inside(rank).front() == rank);
      EXPECT_EQ(role.copied_to.size(),
                static_cast<std::size_t>(std::min<std::int64_t>(2, replicas)));
      std::set<int> where{nodes.of(rank)};
      for (const int to : role.copied_to) {
        EXPECT_TRUE(where.insert(nodes.of(to)).second);
        const NodeRole& other = roles[static_cast<std::size_t>(to)];
        EXPECT_EQ(std::ranges::count(other.copies_of, rank), 1);
        for (const int there : nodes.inside(to)) {
          const auto& keeps = roles[static_cast<std::size_t>(there)].node_keeps;
          EXPECT_EQ(std::ranges::count(keeps, rank), 1);
        }
      }
      for (const int from : role.copies_of) {
        EXPECT_EQ(std::ranges::count(roles[static_cast<std::size_t>(from)].copied_to, rank), 1);
      }
    }
  }
}

TEST(SaveCosts, OfSynchronousSavesAreTheirPauses) {
  const TempDir dir;
  Messages messages;
  const Config config = on_nodes(
      dir, {"checkpoint.mtbf_hours=24", "checkpoint.local.interval=1", "training.train_iters=20"});
  run_to_end(config, messages.hooks());
  double pauses = 0;
  for (const auto& line : read_metrics(dir / "log/metrics.jsonl")) {
    pauses += line["save_pause_ms"].get<double>() * 1e-3;
  }
  const std::string text = messages.all();
  const auto at = text.find("a save has cost ");
  ASSERT_NE(at, std::string::npos) << text;
  // The last save belongs to no iteration.
  EXPECT_NEAR(std::stod(text.substr(at + 16)), pauses / 19, 0.2 * pauses / 19) << text;
}

TEST(SaveCosts, AreReportedAtTheEndOfARun) {
  const TempDir dir;
  Messages messages;
  run_to_end(on_nodes(dir, {"checkpoint.mtbf_hours=24", "checkpoint.save_interval=3"}),
             messages.hooks());
  EXPECT_THAT(messages.all(),
              HasSubstr("best intervals by Daly (2006): checkpoint.local.interval "));
}

}  // namespace
}  // namespace trident::testing

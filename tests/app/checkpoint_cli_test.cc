// `trident checkpoint` as a black box: output, effects and exit codes of its commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/app/cli.h"

namespace trident::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointCli : public CliTest {
 protected:
  CheckpointCli() {
    const Outcome outcome =
        run(train({"checkpoint.save=w", "checkpoint.save_interval=2", "training.train_iters=6"}));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  Outcome checkpoint(std::vector<std::string> words) const {
    words.insert(words.begin(), "checkpoint");
    return run(words);
  }
  json asked(std::vector<std::string> words) const {
    words.insert(words.end(), {"--format", "json"});
    const Outcome outcome = checkpoint(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out);
  }
  std::vector<std::string> there() const {
    std::vector<std::string> names;
    const json list = asked({"list", "w"});
    for (const json& one : list["checkpoints"]) {
      names.push_back(fs::path(one["path"].get<std::string>()).filename().string());
    }
    return names;
  }
};

TEST_F(CheckpointCli, ListAndInspectShowCheckpointsAndTensors) {
  for (const char* of : {"w", "run"}) {
    const json list = asked({"list", of});
    ASSERT_EQ(list["checkpoints"].size(), 3u);
    EXPECT_EQ(list["checkpoints"][2]["iteration"], 6);
    EXPECT_THAT(checkpoint({"list", of}).out, HasSubstr("w/iteration-4"));
  }
  const json one = asked({"inspect", "w/iteration-4", "--hashes"});
  EXPECT_EQ(one["iteration"], 4);
  const json& tensor = one["tensors"]["weight/embedding.weight"];
  EXPECT_EQ(tensor["crc64"].get<std::string>().size(), 16u);
  EXPECT_EQ(asked({"inspect", "run"})["iteration"], 6);
  EXPECT_THAT(checkpoint({"inspect", "w"}).out, HasSubstr("exp_avg/embedding.weight"));
}

TEST_F(CheckpointCli, VerifyNamesTheDamagedFile) {
  EXPECT_EQ(asked({"verify", "w"})["whole"].size(), 3u);
  std::string text = slurp(dir / "w/iteration-4/model.safetensors");
  text.back() ^= 1;
  spit(dir / "w/iteration-4/model.safetensors", text);
  const Outcome outcome = checkpoint({"verify", "run"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.out, HasSubstr("w/iteration-6: complete"));
  EXPECT_THAT(outcome.err, HasSubstr("w/iteration-4/model.safetensors: bytes 0 to "));
  EXPECT_EQ(checkpoint({"verify", "w/iteration-2"}).code, 0);
}

TEST_F(CheckpointCli, DiffReportsADifferenceByItsExitCode) {
  const Outcome same = checkpoint({"diff", "w/iteration-6", "run"});
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_THAT(same.out, HasSubstr("equal: "));
  const Outcome other = checkpoint({"diff", "w/iteration-6", "w/iteration-4"});
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.out, HasSubstr("weight/embedding.weight: "));
}

TEST_F(CheckpointCli, ExportIsAModelsDirectory) {
  ASSERT_EQ(checkpoint({"export", "w/iteration-4", "hf"}).code, 0);
  EXPECT_EQ(slurp(dir / "hf/model.safetensors"), slurp(dir / "w/iteration-4/model.safetensors"));
  EXPECT_FALSE(fs::exists(dir / "hf/trident"));
  const Outcome again = checkpoint({"export", "w/iteration-2", "hf"});
  EXPECT_EQ(again.code, 2);
  EXPECT_EQ(slurp(dir / "hf/model.safetensors"), slurp(dir / "w/iteration-4/model.safetensors"));
  EXPECT_EQ(checkpoint({"export", "w/iteration-2", "hf", "--overwrite"}).code, 0);
  EXPECT_EQ(slurp(dir / "hf/model.safetensors"), slurp(dir / "w/iteration-2/model.safetensors"));
}

TEST_F(CheckpointCli, PruneKeepsTheRequestedCheckpointsAndADryRunRemovesNone) {
  const Outcome dry = checkpoint({"prune", "run", "--keep", "1", "--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("would remove "));
  EXPECT_EQ(there().size(), 3u);
  EXPECT_EQ(checkpoint({"prune", "run", "--keep", "1", "--keep-every", "4"}).code, 0);
  EXPECT_EQ(there(), (std::vector<std::string>{"iteration-4", "iteration-6"}));
}

// A folder that contains only a copied config.json isn't the run's, so prune removes no checkpoint
// through it.
TEST_F(CheckpointCli, PruneRefusesAFolderThatIsNoRun) {
  fs::create_directory(dir / "from-elsewhere");
  fs::copy_file(dir / "run/config.json", dir / "from-elsewhere/config.json");
  const Outcome outcome = checkpoint({"prune", "from-elsewhere", "--keep", "1"});
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_EQ(there().size(), 3u);
}

}  // namespace
}  // namespace trident::testing

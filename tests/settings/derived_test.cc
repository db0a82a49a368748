// A run's config.json is the config as it ran. When a run starts from it again, values that were
// derived follow overrides and edits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "settings/config.h"
#include "settings/fields.h"
#include "tests/settings/support.h"

namespace trident {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Overrides = std::vector<std::string>;

// The options of a machine with `cores` cores, from which "threads_per_rank" is derived.
LoadOptions machine(std::int64_t cores) {
  return {.cores = cores, .micro_batch_size = 2};
}

struct Case {
  Overrides written;  // in addition to the small config
  Overrides change;   // on the filled-in config
};

// Each line changes a value from which others are derived. The filled-in config with that override
// must equal the written config with the same override.
const std::vector<Case> cases{
    {{}, {"training.train_iters=200"}},
    {{"training.train_iters=100"}, {"training.train_iters=200"}},
    {{"training.train_iters=100", "scheduler.type=cosine", "scheduler.warmup_ratio=0.1"},
     {"training.train_iters=200"}},
    {{"training.train_iters=100", "scheduler.decay_iters=90"}, {"training.train_iters=200"}},
    {{"training.train_iters=100", "scheduler.warmup_ratio=0.1"}, {"scheduler.warmup_ratio=0.3"}},
    {{"training.train_epochs=2"}, {"training.train_epochs=3"}},
    {{}, {"training.train_epochs=3"}},
    {{}, {"model.hidden_size=128"}},
    {{}, {"model.num_attention_heads=8"}},
    {{"model.ffn_hidden_size=96", "model.architecture=llama"},
     {"model.architecture=gpt2", "model.ffn_hidden_size=256"}},
    {{}, {"model.architecture=llama", "model.ffn_hidden_size=192"}},
    {{}, {"data.sequence_length=64"}},
    {{"data.tokenizer.type=file", "data.tokenizer.path=t.json", "model.vocab_size=999"},
     {"model.vocab_size=1000"}},
    {{}, {"parallel.data_parallel_size=2"}},
    {{"batch.micro_batch_size=2"}, {"batch.global_batch_size=16"}},
    {{"batch.micro_batch_size=2"}, {"parallel.data_parallel_size=2"}},
    {{"batch.global_batch_size=null", "batch.micro_batch_size=2"}, {"batch.micro_batch_size=4"}},
    {{"batch.micro_batch_size=auto"}, {"batch.global_batch_size=32"}},
    {{"batch.micro_batch_size=2"}, {"batch.gradient_accumulation_steps=4"}},
    {{"parallel.pipeline_model_parallel_size=2", "pipeline.layer_split=auto"},
     {"model.num_layers=8"}},
    {{"parallel.pipeline_model_parallel_size=2"}, {"parallel.pipeline_model_parallel_size=4"}},
    {{"parallel.pipeline_model_parallel_size=2", "parallel.virtual_pipeline_model_parallel_size=2"},
     {"parallel.virtual_pipeline_model_parallel_size=1"}},
    {{"parallel.pipeline_model_parallel_size=2", "pipeline.schedule=zbv"},
     {"pipeline.schedule=zb_h1"}},
    {{"parallel.data_parallel_size=2"}, {"zero_optimization.stage=3"}},
    {{}, {"optimizer.type=SGD"}},
    {{}, {"training.deterministic=false"}},
    {{"training.deterministic=false"}, {"runtime.collective_algorithm=ring"}},
    {{}, {"data.train.0.path=other.txt", "data.split=\"9,1\""}},
};

TEST(DerivedValues, FollowTheKeysThatAnOverrideChanges) {
  for (const Case& one : cases) {
    SCOPED_TRACE(::testing::PrintToString(one.written) + " then " +
                 ::testing::PrintToString(one.change));
    const LoadedConfig ran = parse(kSmallConfig, one.written, machine(8));
    const LoadedConfig again = parse(ran.filled_in, one.change, machine(8));
    Overrides all = one.written;
    // A value that was written as null is replaced where the change writes one.
    all.insert(all.end(), one.change.begin(), one.change.end());
    const LoadedConfig truth = parse(kSmallConfig, all, machine(8));
    EXPECT_EQ(again.config, truth.config) << again.filled_in << truth.filled_in;
    EXPECT_EQ(again.micro_batch_is_auto && !truth.micro_batch_is_auto, false);
  }
}

TEST(DerivedValues, FollowAnEditOfTheFileToo) {
  for (const Case& one : cases) {
    SCOPED_TRACE(::testing::PrintToString(one.written) + " then " +
                 ::testing::PrintToString(one.change));
    json file = json::parse(parse(kSmallConfig, one.written, machine(8)).filled_in);
    config_detail::apply_overrides(file, one.change);  // as an edit of the file
    Overrides all = one.written;
    all.insert(all.end(), one.change.begin(), one.change.end());
    EXPECT_EQ(parse(file.dump(), {}, machine(8)).config,
              parse(kSmallConfig, all, machine(8)).config);
  }
}

TEST(DerivedValues, StayAsTheyRanWhereNothingTheyFollowFromChanges) {
  const LoadedConfig ran =
      parse(kSmallConfig, {"training.train_iters=100", "batch.micro_batch_size=auto"}, machine(8));
  LoadOptions elsewhere = machine(64);
  elsewhere.transport = "mpi";
  elsewhere.micro_batch_size = 4;
  const LoadedConfig again =
      parse(ran.filled_in, {"logging.dir=runs/b", "training.seed=7"}, elsewhere);
  Config expected = ran.config;
  expected.logging.dir = "runs/b";
  expected.training.seed = 7;
  EXPECT_EQ(again.config, expected);
  // The written text is kept, so that a third run can derive its values from it.
  EXPECT_THAT(again.written, HasSubstr("\"micro_batch_size\": \"auto\""));
  EXPECT_EQ(json::parse(again.written).at("logging").at("dir"), "runs/b");
  EXPECT_FALSE(is_written(again.written, "/scheduler/decay_iters"));
  EXPECT_TRUE(is_written(again.written, "/training/train_iters"));
}

TEST(DerivedValues, AnOverrideOfOneWinsAndDerivedNullHoldsAll) {
  const LoadedConfig ran = parse(kSmallConfig, {"training.train_iters=100"}, machine(8));
  const Config own =
      parse(ran.filled_in, {"training.train_iters=200", "scheduler.decay_iters=150"}).config;
  EXPECT_EQ(own.scheduler.decay_iters, 150);
  const LoadedConfig same =  // the same value, but written now
      parse(ran.filled_in, {"scheduler.decay_iters=100"}, machine(8));
  EXPECT_TRUE(is_written(same.written, "/scheduler/decay_iters"));
  const Config held = parse(ran.filled_in, {"derived=null", "training.train_iters=200"}).config;
  EXPECT_EQ(held.scheduler.decay_iters, 100);
  EXPECT_EQ(held.training.train_iters, 200);
}

TEST(DerivedValues, WrittenIsTheFileWithItsOverridesAndNoDefault) {
  const LoadedConfig ran = parse(kSmallConfig, {"optimizer.params.lr=0.5"}, machine(8));
  json expected = json::parse(kSmallConfig);
  expected["optimizer"]["params"]["lr"] = 0.5;
  EXPECT_EQ(json::parse(ran.written), expected);
  EXPECT_EQ(parse(ran.written, {}, machine(8)).config, ran.config);
}

TEST(DerivedValues, EpochsThatBecameIterationsAreCountedAnew) {
  // A trainer does this with 10 iterations an epoch.
  const LoadedConfig ran = parse(kSmallConfig, {"training.train_epochs=2", "scheduler.type=linear",
                                                "scheduler.warmup_ratio=0.1"});
  Config config = ran.config;
  set_train_iters(config, 20);
  const std::string file = config_to_json(config, ran.written);
  EXPECT_EQ(json::parse(file).at("training").at("train_iters"), 20);
  EXPECT_EQ(json::parse(file).at("scheduler").at("warmup_iters"), 2);
  EXPECT_EQ(parse(file).config, ran.config) << "20 follows from the data";
  const Config other = parse(file, {"training.train_epochs=3"}).config;
  EXPECT_EQ(other.training.train_epochs, 3);
  EXPECT_EQ(other.training.train_iters, 0);
  EXPECT_EQ(other.scheduler.warmup_ratio, 0.1);
}

TEST(DerivedValues, ADamagedRecordIsRefused) {
  const LoadedConfig ran = parse(kSmallConfig, {}, machine(8));
  for (const char* text :
       {"7", R"({"keys": {}})", R"({"keys": 3, "fingerprint": ""})",
        R"({"fingerprint": "x", "keys": {"/model/hidden_size/x": {"written": 1, "value": 2}}})",
        R"({"fingerprint": "x", "keys": {"/data/train": {"written": 1, "value": 2}}})",
        R"({"fingerprint": "x", "keys": {"/model/vocab_size": 5}})"}) {
    json file = json::parse(ran.filled_in);
    file["derived"] = json::parse(text);
    try {
      parse(file.dump());
      ADD_FAILURE() << text;
    } catch (const RequestError& error) {
      EXPECT_THAT(error.what(), HasSubstr("config: /derived: ")) << text;
    }
  }
}

}  // namespace
}  // namespace trident

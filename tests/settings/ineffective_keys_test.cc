// Keys without effect in a layout are switched off with a note, and switched on again in a layout
// where they have one.
#include "settings/ineffective_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/settings/support.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Overrides = std::vector<std::string>;

const std::string kTensor = "parallel.tensor_model_parallel_size=";
const std::string kPipeline = "parallel.pipeline_model_parallel_size=";
const std::string kChunks = "parallel.virtual_pipeline_model_parallel_size=";
const std::string kSequence = "parallel.sequence_parallel=true";
const std::string kOverlap = "parallel.tp_comm_overlap=true";
const std::string kSchedule = "pipeline.schedule=";
const std::string kGroup = "pipeline.microbatch_group_size_per_vp_stage=2";

LoadedConfig loaded(const Overrides& overrides) {
  return parse(kSmallConfig, overrides);
}

// Expects the config of `plain`, and a note for each of `keys`.
void expect_ineffective(const Overrides& overrides, const Overrides& plain, const Overrides& keys) {
  const LoadedConfig found = loaded(overrides);
  EXPECT_EQ(found.config, loaded(plain).config);
  const std::vector<std::string> notes = ineffective_key_notes(found);
  ASSERT_EQ(notes.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_THAT(notes[i], ::testing::StartsWith("config: " + keys[i] + ": "));
    EXPECT_THAT(notes[i], HasSubstr("has no effect"));
  }
}

TEST(IneffectiveKeys, AreTensorParallelOptionsWithoutATensorGroup) {
  expect_ineffective({kSequence}, {}, {"/parallel/sequence_parallel"});
  expect_ineffective({kSequence, kOverlap}, {},
                     {"/parallel/sequence_parallel", "/parallel/tp_comm_overlap"});
  expect_ineffective({kOverlap}, {}, {"/parallel/tp_comm_overlap"});
  EXPECT_THAT(ineffective_key_notes(loaded({kSequence})),
              ElementsAre("config: /parallel/sequence_parallel: true has no effect with "
                          "tensor_model_parallel_size 1 and is taken as false"));
}

TEST(IneffectiveKeys, AreInterleavingAndLayerSplitWithoutAPipeline) {
  expect_ineffective({kChunks + "2"}, {}, {"/parallel/virtual_pipeline_model_parallel_size"});
  expect_ineffective({kSchedule + "interleaved_1f1b"}, {}, {"/pipeline/schedule"});
  expect_ineffective({kSchedule + "interleaved_1f1b", kChunks + "1"}, {}, {"/pipeline/schedule"});
  expect_ineffective({kSchedule + "interleaved_zero_bubble", kChunks + "4"}, {kSchedule + "zb_h1"},
                     {"/pipeline/schedule", "/parallel/virtual_pipeline_model_parallel_size"});
  expect_ineffective({kSchedule + "gpipe", kChunks + "2"}, {kSchedule + "gpipe"},
                     {"/parallel/virtual_pipeline_model_parallel_size"});
  expect_ineffective({"pipeline.layer_split=[1, 3]"}, {}, {"/pipeline/layer_split"});
  expect_ineffective({"pipeline.layer_split=[1, 1, 1, 1]", kChunks + "2"}, {},
                     {"/parallel/virtual_pipeline_model_parallel_size", "/pipeline/layer_split"});
  // A V schedule has two chunks on one rank, too.
  EXPECT_THAT(ineffective_key_notes(loaded({kSchedule + "zbv"})), IsEmpty());
}

TEST(IneffectiveKeys, AreSizesOfFeaturesThatTheLayoutLacks) {
  expect_ineffective({kGroup}, {}, {"/pipeline/microbatch_group_size_per_vp_stage"});
  expect_ineffective({kGroup, "pipeline.schedule_file=own.csv"}, {"pipeline.schedule_file=own.csv"},
                     {"/pipeline/microbatch_group_size_per_vp_stage"});
  expect_ineffective({"activation_checkpointing.num_layers=2"}, {},
                     {"/activation_checkpointing/num_layers"});
  expect_ineffective(
      {"activation_checkpointing={\"num_layers\": 2, \"granularity\": \"selective\"}"},
      {"activation_checkpointing.granularity=selective"}, {"/activation_checkpointing/num_layers"});
}

TEST(IneffectiveKeys, AreNoneWhereEachKeyHasAnEffect) {
  for (const Overrides& overrides :
       {Overrides{kSequence, kOverlap, kTensor + "2", "batch.micro_batch_size=2"},
        Overrides{kPipeline + "2", kChunks + "2", kGroup},
        Overrides{kPipeline + "2", "pipeline.layer_split=[1, 3]"},
        Overrides{"activation_checkpointing={\"num_layers\": 2, \"granularity\": \"full\"}"}}) {
    EXPECT_THAT(ineffective_key_notes(loaded(overrides)), IsEmpty());
  }
  EXPECT_TRUE(loaded({kSequence, kTensor + "2"}).config.parallel.sequence_parallel);
}

TEST(IneffectiveKeys, DoNotHideErrors) {
  EXPECT_THAT(problems_of({kOverlap, kTensor + "2"}),
              ElementsAre(HasSubstr("true needs sequence_parallel")));
  EXPECT_THAT(problems_of({kPipeline + "2", kChunks + "2", kSchedule + "gpipe"}),
              ElementsAre(HasSubstr("2 chunks don't fit schedule \"gpipe\"")));
  EXPECT_THAT(problems_of({"pipeline.layer_split=[1, 2]"}),
              ElementsAre(HasSubstr("has 2 numbers")));
}

// A run starts again from a written config in another layout, where the key has an effect.
TEST(IneffectiveKeys, TakeEffectAgainInAnotherLayout) {
  const LoadedConfig one = loaded({kSequence, kChunks + "2"});
  const auto again = [&](const Overrides& overrides) { return parse(one.filled_in, overrides); };
  EXPECT_EQ(again({}).config, one.config);
  const LoadedConfig wide = again({kTensor + "2", kPipeline + "2"});
  EXPECT_EQ(wide.config, loaded({kSequence, kChunks + "2", kTensor + "2", kPipeline + "2"}).config);
  EXPECT_TRUE(wide.config.parallel.sequence_parallel);
  EXPECT_THAT(ineffective_key_notes(wide), IsEmpty());
}

TEST(IneffectiveKeys, AreNotReportedBeforeTheLayoutIsChosen) {
  EXPECT_THAT(
      ineffective_key_notes(loaded({"parallel=auto", "activation_checkpointing.num_layers=2"})),
      IsEmpty());
}

}  // namespace
}  // namespace trident

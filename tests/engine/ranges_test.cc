// The ranges of a step that a GPU profiler shows: one for each stage's work on each micro-batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

#include "engine/setup/from_config.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Ranges, NameStageAndMicroBatch) {
  const TempDir dir;
  const Config config = seeded_config(
      "gpt2", dir.path(), overrides_of({1, 1, 2}) + Overrides{"pipeline.schedule=zb_h1"});
  emulation::Ranges& ranges = emulation::ranges();
  ranges.begun.clear();  // removes the ranges of this program's other tests
  on_ranks(config, transport_options(config),
           [&](Rank& own) { own.stepper.train(synthetic_batches(own.model, 0), 1e-3); });
  EXPECT_EQ(ranges.open, 0);
  const auto last = std::to_string(config.num_microbatches() - 1);
  for (const char* action : {"forward", "backward input", "backward weight"}) {
    for (const char* stage : {"0", "1"}) {
      EXPECT_THAT(
          ranges.begun,
          Contains(std::string(action) + ", stage " + stage + ", micro-batch " + last).Times(1));
    }
  }
  EXPECT_THAT(ranges.begun, Contains("optimizer").Times(2));
  EXPECT_THAT(ranges.begun, Each(Not(HasSubstr("stage 2"))));
}

}  // namespace
}  // namespace trident::testing

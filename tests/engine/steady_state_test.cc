// A step like the steps before it takes no more memory from the device.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/setup/from_config.h"
#include "support/covering.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

TEST(SteadyState, TakesNothingFromTheDeviceAfterTheSecondIteration) {
  struct Case {
    Layout layout;
    Overrides overrides;
  };
  const Overrides sp{"parallel.sequence_parallel=true"};
  const Overrides zero1{"zero_optimization.stage=1"};
  const Overrides zero2{"zero_optimization.stage=2"};
  const Overrides zero3{"zero_optimization.stage=3",
                        "zero_optimization.stage3_param_persistence_threshold=0"};
  const Overrides bf16{"precision.dtype=bf16"};
  const std::vector<Case> cases{{{1, 1, 1}, {}},        {{2, 1, 1}, zero1 + bf16},
                                {{1, 2, 1}, sp + bf16}, {{1, 1, 2}, {}},
                                {{1, 1, 2, 2}, bf16},   {{2, 2, 2}, sp + zero1},
                                {{2, 1, 1}, zero2},     {{2, 1, 2}, zero3 + bf16}};
  const int iterations = usual_device() == On::cuda && !tests_are_full() ? 4 : 6;
  for (const std::string model : {"gpt2", "llama"}) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (!tests_are_full() && (i % 2 == 0) != (model == "gpt2")) continue;
      const Case& c = cases[i];
      std::string name = model + " " + name_of(c.layout);
      for (const std::string& o : c.overrides) name += " " + o;
      SCOPED_TRACE(name);
      const TempDir dir;
      const Config config = seeded_config(model, dir.path(), overrides_of(c.layout) + c.overrides);
      on_ranks(config, transport_options(config), [&](Rank& own) {
        std::vector<std::int64_t> blocks, reserved, taken;
        for (int k = 0; k < iterations; ++k) {
          own.stepper.train(synthetic_batches(own.model, k), 1e-3);
          const Allocator::Figures figures = own.model.context().allocator().figures();
          blocks.push_back(figures.block_bytes);  // reserved bytes count in blocks of 2 MiB
          reserved.push_back(figures.reserved_bytes);
          taken.push_back(own.model.context().ledger().figures().taken);
        }
        EXPECT_GT(reserved[0], 0);
        EXPECT_GT(taken.back(), taken[1]);  // the steps do allocate and free tensors
        for (std::size_t k = 2; k < reserved.size(); ++k) {
          // On a GPU, messages in flight hold their blocks until they are sent.
          if (usual_device() != On::cuda) {
            EXPECT_EQ(blocks[k], blocks[1])
                << "rank " << own.model.topology().world.rank() << ", iteration " << k + 1;
          }
          EXPECT_EQ(reserved[k], reserved[1])
              << "rank " << own.model.topology().world.rank() << ", iteration " << k + 1;
        }
      });
    }
  }
}

}  // namespace
}  // namespace trident::testing

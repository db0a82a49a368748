// The golden 2·2·2 runs and a late overflow, under mpirun with one rank in each process.
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "engine/setup/from_config.h"
#include "support/temp_dir.h"
#include "support/training_run.h"
#include "tests/run/loop/golden_check.h"

namespace trident::testing {
namespace {

// Returns the summary on rank 0.
std::optional<TrainingSummary> train_here(const Config& config, const TrainerHooks& hooks = {}) {
  const TrainingInputs inputs = prepare_training(config);
  const auto device = make_cpu_device();
  const auto transport = make_mpi_transport(transport_options(config));
  EXPECT_EQ(transport->world().size(), 8);
  try {
    TrainingSummary summary = train_rank(inputs, *transport, *device, hooks);
    if (transport->world().rank() != 0) return std::nullopt;
    return summary;
  } catch (const std::exception& error) {
    transport->abort(error.what());
    throw;
  }
}

class GoldenMpi : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenMpi, Dp2Tp2Pp2MatchesLossesGradientsAndNormsWithin1e5) {
  const TempDir dir;  // only rank 0 writes
  const Config config = golden_config(
      GetParam(), dir.path(),
      overrides_of({2, 2, 2}) + Overrides{"runtime.transport=mpi", "zero_optimization.stage=1",
                                          "parallel.sequence_parallel=true"});
  const auto summary = train_here(config);
  if (summary) expect_golden(GetParam(), *summary, dir.path());
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenMpi, ::testing::Values("gpt2", "llama"),
                         [](const auto& one) { return std::string(one.param); });

// A first step with rate 1e30 makes the second step overflow; ranks notice it in their third step.
TEST(PostValidationMpi, AnOverflowIsRolledBack) {
  const TempDir dir;
  const auto config = [&](const char* transport, const char* kind, int iterations) {
    return seeded_config(
        "llama", dir / kind,
        overrides_of({2, 1, 4}) +
            Overrides{std::string("runtime.transport=") + transport,
                      std::string("pipeline.schedule=") + kind, "zero_optimization.stage=1",
                      "batch.micro_batch_size=1", "batch.global_batch_size=16",
                      "gradient_clipping=0", "training.on_non_finite=skip",
                      "optimizer.params.lr=1e30", "scheduler={\"type\": \"constant\"}",
                      "training.train_iters=" + std::to_string(iterations),
                      std::string("checkpoint.save=") + (dir / kind) + "/weights"});
  };
  std::vector<std::string> messages;
  TrainerHooks hooks;
  hooks.on_message = [&](const std::string& text) { messages.push_back(text); };
  const auto summary = train_here(config("mpi", "zb_h2", 4), hooks);
  if (!summary) return;
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_NE(messages[0].find("iteration 2:"), std::string::npos) << messages[0];
  EXPECT_NE(messages[0].find("its update was rolled back"), std::string::npos) << messages[0];
  train(config("local", "1f1b", 1));
  EXPECT_TRUE(slurp(dir / "zb_h2/weights/model.safetensors") ==
              slurp(dir / "1f1b/weights/model.safetensors"));
}

}  // namespace
}  // namespace trident::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Keeps MPI initialised while the tests make transports with options of their own.
  const auto keep = trident::make_mpi_transport({});
  if (keep->world().rank() != 0) {  // one rank prints; the others only return exit codes
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  return RUN_ALL_TESTS();
}

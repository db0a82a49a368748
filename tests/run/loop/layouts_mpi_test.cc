// Sending over MPI changes no bit. Each pair of a ZeRO stage, a schedule and a form of tensor
// parallelism runs in some layout of 8 processes, and is compared with threads of one process.
// golden_mpi_test.cc has main() and belongs to the same program.
#include <gtest/gtest.h>

#include <exception>
#include <ostream>
#include <string>

#include "engine/setup/from_config.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

struct Case {
  const char* name;
  const char* model;  // gpt2 ties its embedding's table to the head's
  Layout layout;
  Overrides overrides;
};
void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

class LayoutsMpi : public ::testing::TestWithParam<Case> {};

TEST_P(LayoutsMpi, GivesTheBitsOfOneProcess) {
  const Case& one = GetParam();
  const TempDir dir;
  const auto config = [&](const std::string& transport) {
    return seeded_config(
        one.model, dir / transport,
        stirred +
            Overrides{"model.num_layers=8", "training.train_iters=3", "training.eval_interval=0",
                      "batch.micro_batch_size=1", "scheduler={\"type\": \"constant\"}",
                      "zero_optimization.stage3_param_persistence_threshold=100",
                      "runtime.transport=" + transport,
                      "checkpoint.save=" + (dir / transport) + "/weights"} +
            overrides_of(one.layout) + one.overrides);
  };
  const Config over_mpi = config("mpi");
  TrainingSummary summary;
  bool leads = false;
  {
    const TrainingInputs inputs = prepare_training(over_mpi);
    const auto device = make_cpu_device();
    const auto transport = make_mpi_transport(transport_options(over_mpi));
    leads = transport->world().rank() == 0;
    try {
      summary = train_rank(inputs, *transport, *device, {});
    } catch (const std::exception& error) {
      transport->abort(error.what());
      throw;
    }
  }
  if (!leads) return;
  const TrainingSummary local = train(config("local"), On::cpu);
  EXPECT_EQ(losses_of(summary), losses_of(local));
  EXPECT_EQ(summary.history.size(), 3U);
  const std::string weights = slurp(dir / "mpi/weights/model.safetensors");
  EXPECT_GT(weights.size(), 100'000U);
  EXPECT_TRUE(weights == slurp(dir / "local/weights/model.safetensors")) << "weights differ";
}

INSTANTIATE_TEST_SUITE_P(
    Pairs, LayoutsMpi,
    ::testing::Values(Case{"zero2_interleaved_sequence_tied",
                           "gpt2",
                           {2, 2, 2, 2},
                           {"zero_optimization.stage=2", "pipeline.schedule=interleaved_1f1b",
                            "parallel.sequence_parallel=true"}},
                      Case{"zero3_zbv",
                           "llama",
                           {2, 1, 4, 2},
                           {"zero_optimization.stage=3", "pipeline.schedule=zbv"}},
                      Case{"zero3_1f1b_sequence_overlap_tied",
                           "gpt2",
                           {2, 2, 2},
                           {"zero_optimization.stage=3", "parallel.sequence_parallel=true",
                            "parallel.tp_comm_overlap=true"}},
                      Case{"zero2_pipedream",
                           "llama",
                           {2, 1, 4},
                           {"zero_optimization.stage=2", "pipeline.schedule=pipedream",
                            "gradient_clipping=0"}},
                      Case{"zero2_pipedream_2bw_tensor_sequence_tied",
                           "gpt2",
                           {2, 2, 2},
                           {"zero_optimization.stage=2", "pipeline.schedule=pipedream_2bw",
                            "parallel.sequence_parallel=true"}},
                      Case{"zero1_zbv_tensor_tied",
                           "gpt2",
                           {1, 4, 2, 2},
                           {"zero_optimization.stage=1", "pipeline.schedule=zbv"}},
                      Case{"zero3_data_alone",
                           "llama",
                           {8, 1, 1},
                           {"zero_optimization.stage=3", "batch.global_batch_size=16"}}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace trident::testing

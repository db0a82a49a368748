// The golden 2·2·2 runs, one rank a process under mpirun.
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>

#include "golden_check.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

class GoldenMpi : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenMpi, Dp2Tp2Pp2MeetsLossesGradientsAndNormsWithin1e5) {
  const TempDir dir;  // rank 0 alone writes
  const Config config = golden_config(
      GetParam(), dir.path(),
      overrides_of({2, 2, 2}) + Overrides{"runtime.transport=mpi", "zero_optimization.stage=1",
                                          "parallel.sequence_parallel=true"});
  const TrainingInputs inputs = prepare_training(config, built_in_architectures());
  const auto device = make_cpu_device();
  const auto transport = make_mpi_transport(transport_options(config));
  ASSERT_EQ(transport->world().size(), 8);
  TrainingSummary summary;
  try {
    summary = train_rank(inputs, *transport, *device, {});
  } catch (const std::exception& error) {
    transport->abort(error.what());
    throw;
  }
  if (transport->world().rank() == 0) expect_golden(GetParam(), summary, dir.path());
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenMpi, ::testing::Values("gpt2", "llama"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace trident::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Keeps MPI initialised while the tests make transports with options of their own.
  const auto keep = trident::make_mpi_transport({});
  if (keep->world().rank() != 0) {  // one rank prints; the others have only their exit codes
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  return RUN_ALL_TESTS();
}

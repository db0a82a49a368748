// The program with its ranks on emulated GPUs: eight unless a test sets another number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/app/program.h"
#include "tests/support/temp_dir.h"

namespace trident::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class GpuCliTest : public ::testing::Test {
 protected:
  GpuCliTest() {
    spit(dir / "text.txt", small_text());
    spit(dir / "c.json",
         json{{"model",
               {{"architecture", "llama"},
                {"num_layers", 4},
                {"ffn_hidden_size", 96},
                {"hidden_size", 32},
                {"num_attention_heads", 4}}},
              {"batch", {{"global_batch_size", 8}, {"micro_batch_size", 1}}},
              {"data", {{"train", {{{"path", "text.txt"}}}}, {"sequence_length", 16}}},
              {"training", {{"train_iters", 3}, {"deterministic", true}}},
              {"runtime", {{"device", "cuda"}}}}
             .dump());
  }
  ~GpuCliTest() override { machine(8, std::size_t{8} << 30); }

  static void machine(int gpus, std::size_t bytes_each) {
    setenv("TRIDENT_EMULATED_GPUS", std::to_string(gpus).c_str(), 1);
    setenv("TRIDENT_EMULATED_GPU_BYTES", std::to_string(bytes_each).c_str(), 1);
  }
  Outcome train(const std::vector<std::string>& set) const {
    return run_program(train_arguments(set), {.directory = dir.path()});
  }
  // Losses and gradient norms of a run, in full precision.
  std::vector<std::string> trajectory(std::vector<std::string> set, const std::string& name) const {
    set.push_back("logging.dir=" + name);
    const Outcome outcome = train(set);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::vector<std::string> values;
    std::istringstream lines(slurp(dir / (name + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const json metrics = json::parse(line);
      if (metrics.contains("grad_norm")) {
        values.push_back(metrics["loss"].dump() + " " + metrics["grad_norm"].dump());
      }
    }
    return values;
  }

  TempDir dir;
};

TEST_F(GpuCliTest, NcclAndLocalTrainBitwiseIdentically) {
  machine(8, std::size_t{8} << 30);
  int runs = 0;
  const std::vector<std::vector<std::string>> layouts{
      {"parallel.data_parallel_size=2", "parallel.tensor_model_parallel_size=2",
       "parallel.pipeline_model_parallel_size=2", "parallel.virtual_pipeline_model_parallel_size=2",
       "pipeline.schedule=interleaved_1f1b", "parallel.sequence_parallel=true"},
      {"parallel.data_parallel_size=4", "parallel.pipeline_model_parallel_size=2",
       "pipeline.schedule=zbv", "zero_optimization.stage=3"}};
  for (const auto& layout : layouts) {
    std::vector<std::string> local = layout, nccl = layout;
    local.push_back("runtime.transport=local");
    nccl.push_back("runtime.transport=nccl");
    const std::string number = std::to_string(runs++);
    const auto by_nccl = trajectory(nccl, "nccl" + number);
    EXPECT_THAT(by_nccl, SizeIs(3));
    EXPECT_EQ(by_nccl, trajectory(local, "local" + number));
  }
}

TEST_F(GpuCliTest, TheHeaderNamesTheDevicesAndNcclNeedsOneForEachRank) {
  machine(2, std::size_t{8} << 30);
  const Outcome outcome = train({"parallel.data_parallel_size=2", "runtime.transport=auto"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("transport nccl"), HasSubstr("device: 2 x emulated GPU"),
                                 HasSubstr("8.00 GiB"), HasSubstr("driver")));
  const Outcome refused = train({"parallel.data_parallel_size=4", "runtime.transport=nccl"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("\"nccl\" needs a GPU for each rank, this machine has 2 for"));
}

// srun --gpus-per-task=1 starts processes in this way.
TEST_F(GpuCliTest, ProcessesThatWereGivenAGpuEachTakeIt) {
  machine(1, std::size_t{8} << 30);
  for (const bool own : {true, false}) {
    if (own) setenv("CUDA_VISIBLE_DEVICES", "2", 1);
    const Outcome outcome =
        run_program({"train", "c.json", "--dry-run", "--format", "json", "--set",
                     "runtime.device=auto", "--set", "parallel.data_parallel_size=4"},
                    {.directory = dir.path(), .launcher = {"mpirun", "-n", "4"}});
    unsetenv("CUDA_VISIBLE_DEVICES");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const json config = json::parse(outcome.out)["config"];
    EXPECT_EQ(config["runtime"]["device"], own ? "cuda" : "cpu");
    EXPECT_EQ(config["runtime"]["transport"], own ? "nccl" : "mpi");
  }
}

TEST_F(GpuCliTest, OutOfMemoryReportsTheRanksCategoriesAndThePlansMemory) {
  machine(1, std::size_t{48} << 20);
  const Outcome outcome =
      train({"model.hidden_size=256", "model.num_layers=8", "runtime.transport=local"});
  EXPECT_EQ(outcome.code, 3) << outcome.out;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("no memory for an allocation of"),
                                 HasSubstr("this rank holds parameter"), HasSubstr("memory  ")));
}

}  // namespace
}  // namespace trident::testing

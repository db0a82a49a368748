// The plan of a run on a GPU.
#include <gtest/gtest.h>

#include <vector>

#include "planner/plan/plan_check.h"

namespace trident::testing {
namespace {

// The GPU is emulated; its cuBLASLt takes its workspace.
TEST(Plan, CountsTheKernelsOfAGpu) {
  const Overrides adafactor{"optimizer.type=Adafactor", "optimizer.params.betas=null",
                            "optimizer.params.eps=null"};
  const Overrides wide{"model.hidden_size=64", "model.ffn_hidden_size=320"};
  const std::vector<PlanCase> cases{
      {"gpt2", {1, 1, 1}, {}},
      {"gpt2", {1, 1, 1}, wide},
      {"llama", {1, 2, 1}, {"parallel.sequence_parallel=true"}},
      {"llama", {1, 1, 1}, wide + adafactor},
      {"llama",
       {1, 2, 1},
       wide + Overrides{"parallel.sequence_parallel=true", "parallel.tp_comm_overlap=true"}},
      {"gpt2", {2, 2, 1}, wide + Overrides{"runtime.transport=nccl"}},
      {"gpt2",
       {2, 2, 1},
       wide + Overrides{"runtime.transport=nccl", "training.deterministic=true"}},
      {"gpt2", {2, 2, 2}, {"zero_optimization.stage=1"}},
      {"llama", {2, 1, 2}, adafactor + Overrides{"zero_optimization.stage=3"}}};
  for (PlanCase c : cases) {
    c.overrides.push_back("runtime.device=cuda");
    expect_planned(c, std::int64_t{32} << 20);
  }
}

}  // namespace
}  // namespace trident::testing

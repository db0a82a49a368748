// Context parallelism: the ranks of parallel.context_parallel_size share each sample.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/hugging_face/hugging_face.h"
#include "run/loop/training_inputs.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident {
namespace {

using namespace testing;
using testing::Outcome;

Overrides context_of(int ranks, const std::string& way = "p2p") {
  Overrides overrides{fmt::format("parallel.context_parallel_size={}", ranks),
                      "parallel.cp_comm_type=" + way};
  if (way == "a2a+p2p") {
    overrides.push_back(
        fmt::format("parallel.hierarchical_context_parallel_sizes=[2, {}]", ranks / 2));
  }
  return overrides;
}

const Overrides latent{"model.architecture=deepseek_v3",
                       "model.num_query_groups=null",
                       "model.kv_lora_rank=12",
                       "model.q_lora_rank=10",
                       "model.qk_head_dim=6",
                       "model.qk_pos_emb_head_dim=4",
                       "model.v_head_dim=5",
                       R"(model.moe={"num_experts": 4, "router_topk": 2, "ffn_hidden_size": 36,
                  "router_num_groups": 2, "router_group_topk": 2,
                  "shared_expert_intermediate_size": 36, "router_load_balancing_type": "none"})"};
const Overrides window{"model.architecture=mistral", "model.sliding_window=5"};
const Overrides sinks{"model.architecture=gpt_oss", "model.sliding_window=7",
                      "model.window_layers=[0, 2]",
                      R"(model.moe={"num_experts": 4, "router_topk": 2})"};
const Overrides documents{"data.reset_attention_mask=true", "data.reset_position_ids=true",
                          "data.eod_mask_loss=true"};

// Steps with dropout and a sequence whose length twice the ranks don't divide.
Outcome steps(const std::string& model, const Layout& layout, const Overrides& more) {
  return outcome(model, layout,
                 Overrides{"data.sequence_length=21", "training.train_iters=6"} + more);
}

// Distances of losses and, since AdamW divides by small numbers, of the weights after all steps.
void expect_near(const Outcome& got, const Outcome& want) {
  EXPECT_LT(largest_relative_difference(got.losses, want.losses), 1e-5);
  EXPECT_LT(largest_relative_distance(got.tensors, want.tensors), 1e-4);
}

TEST(ContextParallel, LossesAndWeightsAreThoseOfOneRank) {
  struct Case {
    const char* model;
    Overrides family;
    std::vector<std::pair<int, const char*>> ways;
  };
  for (const auto& [model, family, ways] :
       {Case{"gpt2", {}, {{2, "p2p"}, {3, "p2p"}, {4, "a2a"}, {6, "a2a+p2p"}, {8, "all_gather"}}},
        Case{"llama", {}, {{2, "a2a"}, {3, "all_gather"}, {4, "a2a+p2p"}, {8, "p2p"}}},
        Case{"llama", window, {{2, "a2a"}, {3, "p2p"}, {4, "all_gather"}, {8, "a2a+p2p"}}},
        Case{"llama", documents, {{2, "a2a"}, {3, "p2p"}, {4, "a2a+p2p"}, {5, "all_gather"}}},
        Case{"llama", sinks, {{2, "p2p"}, {4, "a2a"}, {6, "a2a+p2p"}}},
        Case{"llama", latent, {{2, "a2a"}, {3, "p2p"}, {4, "a2a+p2p"}}}}) {
    SCOPED_TRACE(family.empty() ? model : family.front());
    const Outcome one = steps(model, {}, family);
    for (const auto& [ranks, way] : ways) {
      SCOPED_TRACE(fmt::format("cp {} {}", ranks, way));
      expect_near(steps(model, {}, family + context_of(ranks, way)), one);
    }
  }
}

// Tokens and labels of further layers lie on other ranks.
TEST(ContextParallel, FurtherTokensAreThoseOfOneRank) {
  for (const char* tied : {"true", "false"}) {
    const Overrides further =
        latent + Overrides{"model.mtp_num_layers=2", "model.mtp_loss_scaling_factor=1",
                           std::string("model.tie_word_embeddings=") + tied};
    const Outcome one = steps("llama", {}, further);
    expect_near(steps("llama", {}, further + context_of(3)), one);
    expect_near(steps("llama", {1, 1, 2}, further + context_of(2, "a2a")), one);
  }
}

TEST(ContextParallel, GoesWithEveryOtherAxis) {
  const Outcome one = steps("llama", {}, {});
  for (const auto& [layout, more] : std::vector<std::pair<Layout, Overrides>>{
           {{2, 1, 1}, {}},
           {{2, 1, 2}, {"zero_optimization.stage=1"}},
           {{1, 2, 1}, {}},
           {{1, 1, 2, 2}, {"pipeline.schedule=interleaved_1f1b"}},
           {{2, 1, 1}, {"zero_optimization.stage=3", "activation_checkpointing.granularity=full"}},
           {{1, 2, 2},
            {"parallel.sequence_parallel=true", "data.sequence_length=24",
             "activation_checkpointing.granularity=selective"}}}) {
    SCOPED_TRACE(name_of(layout));
    const bool other = more.size() > 1 && more[1] == "data.sequence_length=24";
    const Outcome want = other ? steps("llama", {}, {"data.sequence_length=24"}) : one;
    for (const auto& [ranks, way] : {std::pair{2, "p2p"}, {2, "a2a"}, {4, "a2a+p2p"}}) {
      if (ranks == 4 && layout.data * layout.pipeline > 2) continue;  // a case more, no other
      expect_near(steps("llama", layout, more + context_of(ranks, way)), want);
    }
  }
}

// Losses that count the tokens of a sample, and experts folded over data and context ranks.
TEST(ContextParallel, ExpertsAreBalancedOverCompleteSamples) {
  for (const char* balancing : {"seq_aux_loss", "aux_loss"}) {
    SCOPED_TRACE(balancing);
    const Overrides experts{
        "model.architecture=qwen3_moe", "batch.micro_batch_size=2",
        fmt::format(R"(model.moe={{"num_experts": 4, "router_topk": 2, "ffn_hidden_size": 36,
                    "router_load_balancing_type": "{}", "aux_loss_coeff": 0.3,
                    "z_loss_coeff": 0.1}})",
                    balancing)};
    const Outcome one = steps("llama", {}, experts);
    for (const auto& [layout, ep] :
         std::vector<std::pair<Layout, int>>{{{}, 2}, {{1, 2, 1}, 4}, {{1, 1, 2}, 1}}) {
      SCOPED_TRACE(name_of(layout));
      const Overrides more = experts + context_of(2) +
                             Overrides{fmt::format("parallel.expert_model_parallel_size={}", ep),
                                       "parallel.expert_tensor_parallel_size=1"};
      expect_near(steps("llama", layout, more), one);
    }
  }
}

// The same tokens are dropped: those at later positions of a complete sample.
TEST(ContextParallel, ExpertsHaveTheCapacityOfCompleteSamples) {
  const Overrides experts{"model.architecture=qwen3_moe", "batch.micro_batch_size=2",
                          R"(model.moe={"num_experts": 4, "router_topk": 2, "ffn_hidden_size": 36,
                                        "expert_capacity_factor": 0.8})"};
  const Outcome one = steps("llama", {}, experts);
  for (const auto& [layout, more] : std::vector<std::pair<Layout, Overrides>>{
           {{}, context_of(3)},
           // Four ranks of a layer share the pieces.
           {{1, 4, 1}, context_of(2) + Overrides{"parallel.expert_model_parallel_size=2"}},
           {{1, 2, 1}, context_of(3) + Overrides{"parallel.sequence_parallel=true"}}}) {
    SCOPED_TRACE(name_of(layout));
    expect_near(steps("llama", layout, experts + more), one);
  }
}

TEST(ContextParallel, ARingAndAGatherGiveTheSameBits) {
  for (const char* dtype : {"fp32", "bf16"}) {
    const Overrides precision{std::string("precision.dtype=") + dtype};
    for (const int ranks : {2, 3}) {
      expect_same_bits(steps("llama", {}, precision + context_of(ranks, "p2p")),
                       steps("llama", {}, precision + context_of(ranks, "all_gather")));
    }
  }
}

TEST(ContextParallel, NoBitDependsOnThePipelineTheScheduleOrZero) {
  const Outcome plain = steps("gpt2", {2, 1, 1}, context_of(2));
  for (const auto& [layout, more] : std::vector<std::pair<Layout, Overrides>>{
           {{2, 1, 1}, {"zero_optimization.stage=1"}},
           {{2, 1, 1},
            {"zero_optimization.stage=3", "zero_optimization.reduce_each_micro_batch=false"}},
           {{2, 1, 2}, {"pipeline.schedule=zb_h1"}},
           {{2, 1, 2, 2}, {"pipeline.schedule=interleaved_1f1b"}},
           {{2, 1, 1}, {"activation_checkpointing.granularity=full"}}}) {
    SCOPED_TRACE(name_of(layout) + more.front());
    expect_same_bits(steps("gpt2", layout, more + context_of(2)), plain);
  }
}

// Without updates in between, so that the states are those of the first layout.
TEST(ContextParallel, CheckpointsMoveToOtherNumbersOfRanksUnchanged) {
  const TempDir dir;
  const auto run = [&](const std::string& name, int ranks, int from, int to,
                       const std::string& load, const Overrides& more = {}) {
    const Config config = seeded_config(
        "gpt2", dir.path(),
        Overrides{"data.sequence_length=21", fmt::format("training.train_iters={}", to),
                  "scheduler={\"type\": \"constant\"}", "checkpoint.save_interval=2",
                  "logging.dir=" + (dir / name), "checkpoint.save=" + (dir / "w-") + name} +
            (load.empty() ? Overrides{}
                          : Overrides{fmt::format("checkpoint.load={}/w-{}/iteration-{}",
                                                  dir.path(), load, from)}) +
            context_of(ranks) + more);
    return losses_of(train(config));
  };
  const auto whole = run("whole", 2, 0, 4, "");
  // The same layout goes on with the same bits.
  const auto rest = run("rest", 2, 2, 4, "whole");
  EXPECT_EQ(rest, std::vector(whole.begin() + 2, whole.end()));
  // Other numbers of ranks, with steps that change nothing.
  const Overrides still{"optimizer.params.lr=0", "optimizer.params.weight_decay=0"};
  const auto tensors = [&](const std::string& name) {
    return slurp(dir / ("w-" + name) + "/model.safetensors");
  };
  run("four", 4, 4, 6, "whole", still);
  run("one", 1, 6, 8, "four", still + Overrides{"zero_optimization.stage=1"});
  run("three", 3, 8, 10, "one", still + Overrides{"zero_optimization.stage=2"});
  EXPECT_TRUE(tensors("four") == tensors("whole"));
  EXPECT_TRUE(tensors("one") == tensors("whole"));
  EXPECT_TRUE(tensors("three") == tensors("whole"));
}

// The losses of tokens, in the order of positions, and their mean.
std::pair<std::vector<float>, double> validation(const Layout& layout, int sequence,
                                                 const Overrides& more) {
  const TempDir dir;
  const Config config = seeded_config(
      "llama", dir.path(),
      overrides_of(layout) + Overrides{fmt::format("data.sequence_length={}", sequence)} + more);
  std::vector<float> found;
  double mean = 0;
  on_ranks(config, {}, [&](Rank& rank) {
    const auto batches = synthetic_batches(rank.model, 0);
    const auto own = rank.evaluator.token_losses(batches);
    const auto own_mean = rank.evaluator.mean_loss(batches);
    if (rank.model.topology().world.rank() == 0) found = own, mean = own_mean.value();
  });
  return {found, mean};
}

// Positions that 2 · 4 divides, so that two neighbours have the pieces of a rank of a ring of two.
TEST(ContextParallel, NeighboursThatExchangeHeadsHaveTheBitsOfTheirRing) {
  const auto ring = validation({}, 24, context_of(2, "p2p"));
  EXPECT_EQ(validation({}, 24, context_of(4, "a2a+p2p")).first, ring.first);
  EXPECT_NE(validation({}, 24, context_of(4, "p2p")).first, ring.first);
}

TEST(ContextParallel, ValidationAndTokenLossesAreThoseOfOneRank) {
  const auto one = validation({2, 1, 1}, 21, {});
  for (const Layout& layout : {Layout{2, 1, 1}, Layout{2, 1, 2}}) {
    const auto shared = validation(layout, 21, context_of(3));
    ASSERT_EQ(shared.first.size(), one.first.size());
    for (std::size_t i = 0; i < one.first.size(); ++i) {
      EXPECT_NEAR(shared.first[i], one.first[i], 1e-4) << i;
    }
    EXPECT_NEAR(shared.second, one.second, 1e-5);
  }
}

TEST(ContextParallel, IsRefusedWhereItDoesNotFit) {
  const TempDir dir;
  const auto problem = [&](const Overrides& overrides) {
    try {
      prepare_training({.config = seeded_config("llama", dir.path(), overrides)});
      return std::string("accepted");
    } catch (const RequestError& error) {
      return std::string(error.what());
    }
  };
  const auto sequence = [](int n) { return Overrides{fmt::format("data.sequence_length={}", n)}; };
  EXPECT_EQ(problem(sequence(6) + context_of(3)), "accepted");
  EXPECT_THAT(
      problem(sequence(5) + context_of(3)),
      ::testing::HasSubstr("/parallel/context_parallel_size: 3 ranks need two positions each, but "
                           "sequence_length is 5; use at most 2"));
  EXPECT_THAT(problem(sequence(24) + context_of(3, "a2a")),
              ::testing::HasSubstr("which cp_comm_type \"a2a\" exchanges; use "));
  const auto sizes = [](const char* list) {
    return Overrides{std::string("parallel.hierarchical_context_parallel_sizes=") + list};
  };
  EXPECT_EQ(problem(sequence(24) + context_of(4, "a2a+p2p")), "accepted");
  EXPECT_THAT(problem(sequence(24) + context_of(4, "a2a+p2p") + sizes("[4, 2]")),
              ::testing::HasSubstr("needs two sizes of at least 2 whose product is"));
  EXPECT_THAT(problem(sequence(24) + context_of(6, "a2a+p2p") + sizes("[3, 2]")),
              ::testing::HasSubstr("/parallel/hierarchical_context_parallel_sizes: 3 does not "
                                   "divide the 8 heads and 4 query groups of a tensor rank; use "
                                   "[2, 3]"));
  EXPECT_THAT(problem(sequence(24) + context_of(4) + sizes("[2, 2]")),
              ::testing::HasSubstr("belongs to cp_comm_type \"a2a+p2p\""));
  EXPECT_THAT(
      problem(sequence(21) + context_of(2) +
              Overrides{"parallel.tensor_model_parallel_size=2", "parallel.sequence_parallel=true",
                        "batch.micro_batch_size=1"}),
      ::testing::HasSubstr("can't share under sequence_parallel; use a sequence_length of "));
}

}  // namespace
}  // namespace trident

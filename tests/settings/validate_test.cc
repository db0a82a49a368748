#include <gmock/gmock.h>

#include "tests/settings/support.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::string kTensor = "parallel.tensor_model_parallel_size=";
const std::string kPipeline = "parallel.pipeline_model_parallel_size=";
const std::string kExpert = "parallel.expert_model_parallel_size=";
const std::string kChunks = "parallel.virtual_pipeline_model_parallel_size=";

TEST(ConfigConstraints, AScheduleFileIsRefusedWithAScheduleThatContradictsIt) {
  const std::string file = "pipeline.schedule_file=own.csv";
  EXPECT_THAT(problems_of({file, "pipeline.schedule=pipedream_2bw"}),
              ElementsAre(HasSubstr("/pipeline/schedule_file: a schedule of your own is flushed")));
}

TEST(ConfigConstraints, TensorSizeDividesHeadsGroupsAndMlp) {
  EXPECT_THAT(problems_of({kTensor + "3"}),
              ElementsAre("config: /parallel/tensor_model_parallel_size: 3 does not divide "
                          "num_attention_heads (4); use 1, 2 or 4"));
  EXPECT_THAT(problems_of({kTensor + "4", "model.architecture=llama", "model.num_query_groups=2",
                           "model.ffn_hidden_size=192"}),
              ElementsAre("config: /parallel/tensor_model_parallel_size: 4 does not divide "
                          "num_query_groups (2); use 1 or 2"));
  EXPECT_THAT(problems_of({kTensor + "4", "model.ffn_hidden_size=202"}),
              ElementsAre("config: /parallel/tensor_model_parallel_size: 4 does not divide "
                          "ffn_hidden_size (202); use 1 or 2"));
  EXPECT_THAT(problems_of({kTensor + "4", "model.vocab_size=257"}), IsEmpty());
}

TEST(ConfigConstraints, ATransportAndAnAlgorithmServeTheDevice) {
  EXPECT_THAT(problems_of({"runtime.device=cuda", "runtime.transport=mpi"}),
              ElementsAre(HasSubstr("/runtime/transport: \"mpi\" carries no tensors of a GPU")));
  EXPECT_THAT(problems_of({"runtime.device=cpu", "runtime.transport=nccl"}),
              ElementsAre(HasSubstr("/runtime/transport: \"nccl\" carries tensors of GPUs only")));
  EXPECT_THAT(problems_of({"runtime.device=cuda", "runtime.collective_algorithm=tree"}),
              ElementsAre(HasSubstr("\"tree\" is for ranks on the CPU")));
  EXPECT_THAT(problems_of({"runtime.device=cuda", "runtime.transport=nccl"}), IsEmpty());
}

TEST(ConfigConstraints, SizesAreBoundedTogether) {
  const auto refused = [](const std::vector<std::string>& overrides, const std::string& part) {
    EXPECT_THAT(problems_of(overrides), ::testing::Contains(HasSubstr(part)));
  };
  refused({"model.hidden_size=10000000", "model.num_layers=100000"},
          "/model/hidden_size: makes 1.6e+20 parameters; at most 1e+15 are possible");
  refused({"model.hidden_size=10000000", "model.vocab_size=1000000000"},
          "parameters; at most 1e+15");
  refused({"parallel.data_parallel_size=1000000", kPipeline + "10000", "model.num_layers=10000"},
          "/parallel/data_parallel_size: makes 1e+10 ranks; at most 2.15e+09");
  refused({"batch.micro_batch_size=1000000", "batch.global_batch_size=1000000",
           "data.sequence_length=10000000"},
          "/batch/micro_batch_size: makes 1e+13 tokens of an iteration on one rank");
  refused(
      {"batch.micro_batch_size=1", "data.sequence_length=10000000", "model.num_attention_heads=32"},
      "/batch/micro_batch_size: makes 3.2e+15 elements of an activation");
  refused({"batch.micro_batch_size=1", "batch.global_batch_size=1000000",
           "parallel.data_parallel_size=1000000", "data.sequence_length=1000000",
           "training.train_iters=1000000000"},
          "/training/train_iters: makes 1e+21 tokens of the run");
}

TEST(ConfigConstraints, CoverHeadSizes) {
  EXPECT_THAT(problems_of({"model.hidden_size=66"}),
              ElementsAre("config: /model/hidden_size: 66 is not a multiple of "
                          "num_attention_heads (4); use 64 or 68"));
  EXPECT_THAT(problems_of({"model.architecture=llama", "model.hidden_size=68",
                           "model.ffn_hidden_size=128"}),
              ElementsAre("config: /model/hidden_size: 68 / num_attention_heads (4) = 17 is odd, "
                          "but rotary positions turn pairs; use 64 or 72"));
  EXPECT_THAT(problems_of({"model.hidden_size=68"}), IsEmpty());
  EXPECT_THAT(problems_of({"model.architecture=llama", "model.ffn_hidden_size=128",
                           "model.num_query_groups=3"}),
              ElementsAre("config: /model/num_query_groups: 3 does not divide num_attention_heads "
                          "(4); use 1, 2 or 4"));
  EXPECT_THAT(problems_of({"model.num_query_groups=2"}),
              ElementsAre(HasSubstr("gpt2 has no grouped queries")));
  EXPECT_THAT(problems_of({"model.rotary_base=500000"}),
              ElementsAre(HasSubstr("gpt2 has no rotary positions")));
}

TEST(ConfigConstraints, HeadsMayHaveASizeOfTheirOwn) {
  const auto llama = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"model.architecture=llama", "model.ffn_hidden_size=128"});
    return more;
  };
  EXPECT_EQ(small_config(llama({})).model.head_dim, 16);
  EXPECT_EQ(small_config(llama({"model.head_dim=24"})).head_dim(), 24);
  // transformers' LlamaConfig needs whole heads in any case, MistralConfig does not.
  const std::vector<std::string> odd{"model.hidden_size=66", "model.head_dim=24"};
  EXPECT_THAT(problems_of(llama(odd)), ElementsAre(HasSubstr("66 is not a multiple of")));
  EXPECT_THAT(problems_of(llama({"model.architecture=mistral", odd[0], odd[1]})), IsEmpty());
  EXPECT_THAT(problems_of(llama({"model.architecture=mistral", odd[0]})),
              ElementsAre(HasSubstr("/model/hidden_size: 66 is not a multiple of")));
  EXPECT_THAT(problems_of(llama({"model.head_dim=7"})),
              ElementsAre("config: /model/head_dim: 7 is odd, but rotary positions turn pairs; use "
                          "6 or 8"));
  EXPECT_THAT(
      problems_of({"model.head_dim=24"}),
      ElementsAre("config: /model/head_dim: 24 differs from hidden_size / "
                  "num_attention_heads, which gpt2's heads have; leave it out, or use "
                  "gpt_oss, llama, mistral, mixtral, qwen2, qwen2_moe, qwen3 or qwen3_moe"));
}

// A config of experts: `moe` has keys of that section.
std::vector<std::string> with_experts(const std::vector<std::string>& moe,
                                      std::vector<std::string> more = {}) {
  std::vector<std::string> all{"model.architecture=mixtral", "model.ffn_hidden_size=96"};
  for (const std::string& one : moe) all.push_back("model.moe." + one);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(ConfigConstraints, CoverExpertsOfModelsThatHaveThem) {
  const Config config = small_config(with_experts({"num_experts=8"}));
  EXPECT_EQ(config.model.moe.ffn_hidden_size, 96);
  EXPECT_THAT(config.model.moe.layer_freq, ElementsAre(1, 1, 1, 1));
  EXPECT_TRUE(config.model.moe.norm_topk_prob);
  EXPECT_EQ(config.parallel.expert_tensor_parallel_size,
            config.parallel.tensor_model_parallel_size);
  const auto qwen = [](const std::vector<std::string>& moe) {
    auto all = with_experts(moe);
    all[0] = "model.architecture=qwen3_moe";
    return all;
  };
  const auto every_second = small_config(qwen({"num_experts=8", "layer_freq=2"})).model.moe;
  EXPECT_THAT(every_second.layers(), ElementsAre(0, 2));
  EXPECT_FALSE(every_second.norm_topk_prob);

  EXPECT_THAT(problems_of(with_experts({})),
              ElementsAre("config: /model/moe/num_experts: is missing; mixtral has experts"));
  EXPECT_THAT(problems_of({"model.moe.num_experts=4"}),
              ElementsAre("config: /model/moe/num_experts: gpt2 has no experts; leave it out, or "
                          "use deepseek_v3, gpt_oss, mixtral, olmoe, qwen2_moe or qwen3_moe"));
  EXPECT_THAT(problems_of({"model.moe.router_topk=4", kExpert + "2"}),
              ElementsAre("config: /model/moe/router_topk: has no effect without num_experts; "
                          "leave it out, or give that",
                          "config: /parallel/expert_model_parallel_size: 2 ranks need experts, but "
                          "the model has none; use 1"));
  EXPECT_THAT(problems_of(with_experts({"num_experts=4", "ffn_hidden_size=\"\""})),
              ElementsAre(HasSubstr("/model/moe/ffn_hidden_size: ")));
  EXPECT_THAT(problems_of(with_experts({"num_experts=4", "router_topk=5"})),
              ElementsAre("config: /model/moe/router_topk: 5 is more than the 4 experts that a "
                          "token can choose from; use at most 4"));
  EXPECT_THAT(problems_of(with_experts({"num_experts=4", "norm_topk_prob=false"})),
              ElementsAre(HasSubstr("mixtral's weights are divided by their sum; leave it out, or "
                                    "use deepseek_v3, olmoe, qwen2_moe or qwen3_moe")));
  EXPECT_THAT(problems_of(with_experts({"num_experts=4", "layer_freq=[1, 0, 1, 1]"})),
              ElementsAre(HasSubstr("mixtral has experts in all layers")));
  EXPECT_THAT(problems_of(qwen({"num_experts=4", "layer_freq=[1, 0]"})),
              ElementsAre(HasSubstr("has 2 numbers; use one for each of num_layers (4)")));
  EXPECT_THAT(problems_of(qwen({"num_experts=4", "layer_freq=[0, 0, 2, 0]"})),
              ElementsAre(HasSubstr("needs 1 for a layer with experts")));
  EXPECT_THAT(problems_of(qwen({"num_experts=4", "layer_freq=0"})),
              ElementsAre(HasSubstr("/model/moe/layer_freq: ")));
  EXPECT_THAT(problems_of(qwen({"num_experts=4", "router_num_groups=2"})),
              ElementsAre(HasSubstr("qwen3_moe's experts form no groups; leave it out")));
}

TEST(ConfigConstraints, CoverBiasesOfExpertsAndAdafactor) {
  const auto with = [](std::vector<std::string> keys) {
    keys.insert(
        keys.end(),
        {"model.architecture=gpt_oss", "model.ffn_hidden_size=96", "model.moe.num_experts=4",
         "optimizer.type=Adafactor", "optimizer.params.lr=0.01", kExpert + "2",
         "parallel.data_parallel_size=4", "parallel.tensor_model_parallel_size=2"});
    return problems_of(keys);
  };
  EXPECT_THAT(with({"parallel.expert_tensor_parallel_size=1"}), IsEmpty());
  EXPECT_THAT(
      with({"parallel.expert_tensor_parallel_size=2"}),
      ElementsAre(HasSubstr("2 ranks an expert don't fit 2 different ones with Adafactor")));
}

TEST(ConfigConstraints, CoverLatentAttentionAndBiasesOfExperts) {
  const auto deepseek = [](std::vector<std::string> keys) {
    std::vector<std::string> all{"model.architecture=deepseek_v3", "model.ffn_hidden_size=96",
                                 "model.moe.num_experts=4", "model.moe.ffn_hidden_size=24",
                                 "model.moe.shared_expert_intermediate_size=48"};
    all.insert(all.end(), keys.begin(), keys.end());
    return all;
  };
  const ModelConfig model =
      small_config(deepseek({"model.kv_lora_rank=32", "model.qk_pos_emb_head_dim=16"})).model;
  EXPECT_EQ(model.qk_head_dim, 128);
  EXPECT_EQ(model.v_head_dim, 128);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.q_lora_rank, 0);
  EXPECT_TRUE(model.moe.router_enable_expert_bias);
  EXPECT_EQ(model.moe.router_dtype, "fp32");
  EXPECT_EQ(model.moe.router_score_function, "sigmoid");
  EXPECT_EQ(small_config(with_experts({"num_experts=4"})).model.moe.router_dtype, "model");

  EXPECT_THAT(problems_of(deepseek({})),
              ElementsAre("config: /model/kv_lora_rank: must be given for deepseek_v3"));
  const auto with_rank = [&](std::vector<std::string> keys) {
    keys.emplace_back("model.kv_lora_rank=32");
    return problems_of(deepseek(keys));
  };
  EXPECT_THAT(with_rank({"model.qk_pos_emb_head_dim=7"}),
              ElementsAre(HasSubstr("/model/qk_pos_emb_head_dim: 7 is odd")));
  EXPECT_THAT(with_rank({"model.head_dim=8"}),
              ElementsAre("config: /model/head_dim: 8 differs from qk_pos_emb_head_dim (64); leave "
                          "it out"));
  EXPECT_THAT(with_rank({"model.num_query_groups=2"}),
              ElementsAre(HasSubstr("deepseek_v3 has no grouped queries")));
  EXPECT_THAT(with_rank({"model.moe.layer_freq=[1, 0, 1, 1]"}),
              ElementsAre(HasSubstr("has experts in all layers but the first ones")));
  EXPECT_THAT(with_rank({"model.moe.shared_expert_intermediate_size=40"}),
              ElementsAre(HasSubstr("40 is not a multiple of ffn_hidden_size (24), as "
                                    "deepseek_v3's files need; use 24 or 48")));
  EXPECT_THAT(with_rank({"model.moe.shared_expert_intermediate_size=0"}),
              ElementsAre(HasSubstr("is missing; deepseek_v3 has a shared expert")));
  EXPECT_THAT(with_rank({"model.moe.router_enable_expert_bias=false"}),
              ElementsAre(HasSubstr("give router_bias_update_rate 0 to keep them")));
  EXPECT_THAT(with_rank({"model.sliding_window=8"}),
              ElementsAre(HasSubstr("deepseek_v3 has no window")));
  EXPECT_THAT(with_rank({"model.mtp_num_layers=1"}), ElementsAre());
  EXPECT_THAT(with_rank({"model.mtp_num_layers=4", "data.sequence_length=4"}),
              ElementsAre("config: /model/mtp_num_layers: a sequence of 4 tokens has none that far "
                          "ahead; use at most 3"));
  EXPECT_THAT(with_rank({"model.mtp_loss_scaling_factor=0.3"}),
              ElementsAre("config: /model/mtp_loss_scaling_factor: has no effect without "
                          "mtp_num_layers; leave it out, or give that"));
  EXPECT_THAT(problems_of({"model.mtp_num_layers=1"}),
              ElementsAre("config: /model/mtp_num_layers: gpt2 has no layers that predict further "
                          "tokens; use 0, or use deepseek_v3"));
  EXPECT_THAT(problems_of({"model.v_head_dim=8"}),
              ElementsAre("config: /model/v_head_dim: gpt2 has no latent attention; leave it out, "
                          "or use deepseek_v3"));
  EXPECT_THAT(problems_of(with_experts({"num_experts=4", "router_enable_expert_bias=true"})),
              ElementsAre(HasSubstr("mixtral's files have no biases of experts; leave it out, or "
                                    "use deepseek_v3")));
}

TEST(ConfigConstraints, CoverWidthsAndListsOfExperts) {
  EXPECT_THAT(problems_of(with_experts({"num_experts=4", "ffn_hidden_size=48"})),
              ElementsAre(HasSubstr("/model/moe/ffn_hidden_size: 48 differs from "
                                    "model.ffn_hidden_size (96), which mixtral has")));
  // A list has a number for each layer, a number alone stands for every n-th.
  for (const char* list : {"[1]", "[]", "[4]"}) {
    EXPECT_THAT(problems_of(with_experts({"num_experts=4", std::string("layer_freq=") + list})),
                ElementsAre(HasSubstr("use one for each of num_layers (4)")))
        << list;
  }
  EXPECT_THAT(
      problems_of(with_experts({"num_experts=65536"},
                               {"model.ffn_hidden_size=100000000", "model.hidden_size=800000"})),
      ElementsAre(HasSubstr("/model/moe/num_experts: makes 6.29e+19 parameters of experts")));
  const auto least = parse(kSmallConfig,
                           with_experts({"num_experts=12"}, {kExpert + "4", kTensor + "2",
                                                             "parallel.data_parallel_size=8"}),
                           {.least_data_parallel = true});
  EXPECT_EQ(least.config.parallel.data_parallel_size, 4);
}

TEST(ConfigConstraints, CoverRanksOfExperts) {
  const std::vector<std::string> four{"parallel.data_parallel_size=4", "batch.global_batch_size=8"};
  const auto sizes = [&](const std::string& expert, const std::string& tensor) {
    auto all = four;
    all.push_back(kExpert + expert);
    all.push_back("parallel.expert_tensor_parallel_size=" + tensor);
    return with_experts({"num_experts=12"}, all);
  };
  EXPECT_THAT(problems_of(sizes("4", "1")), IsEmpty());
  EXPECT_THAT(problems_of(sizes("2", "2")), IsEmpty());
  EXPECT_THAT(problems_of(sizes("8", "1")),
              ElementsAre("config: /parallel/expert_model_parallel_size: 8 does not divide "
                          "num_experts (12); use 1, 2 or 4"));
  EXPECT_THAT(
      problems_of(sizes("3", "1")),
      ElementsAre(HasSubstr("expert (3) × expert tensor (1) = 3 does not divide the 4 ranks "
                            "of a pipeline stage; use 1, 2 or 4 here")));
  EXPECT_THAT(problems_of(sizes("1", "5")),
              ElementsAre(HasSubstr("/parallel/expert_tensor_parallel_size: 5 does not divide "
                                    "model.moe.ffn_hidden_size (96)")));
}

TEST(ConfigConstraints, CoverWindowsOfModelsThatHaveThem) {
  const auto of = [](const std::string& model, std::vector<std::string> more) {
    more.insert(more.begin(), {"model.architecture=" + model, "model.ffn_hidden_size=128"});
    return more;
  };
  EXPECT_EQ(small_config(of("mistral", {})).model.sliding_window, std::nullopt);
  EXPECT_THAT(small_config(of("mistral", {"model.sliding_window=9"})).model.window_layers,
              ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(problems_of(of("qwen3", {"model.sliding_window=9", "model.window_layers=[1, 3]"})),
              IsEmpty());
  EXPECT_THAT(problems_of(of("llama", {"model.sliding_window=9"})),
              ElementsAre("config: /model/sliding_window: llama has no window; leave it out, or "
                          "use gpt_oss, mistral, mixtral, qwen2, qwen2_moe, qwen3 or qwen3_moe"));
  EXPECT_THAT(problems_of(of("mistral", {"model.sliding_window=9", "model.window_layers=[1]"})),
              ElementsAre(HasSubstr("mistral has the window in all layers or in none")));
  EXPECT_THAT(problems_of(of("qwen2", {"model.window_layers=[1]"})),
              ElementsAre(HasSubstr("/model/window_layers: needs a sliding_window")));
  EXPECT_THAT(problems_of(of("qwen2", {"model.sliding_window=9", "model.window_layers=[]"})),
              ElementsAre(HasSubstr("/model/window_layers: names no layer")));
  EXPECT_THAT(
      problems_of(of("qwen2", {"model.sliding_window=9", "model.window_layers=[1, 4]"})),
      ElementsAre(HasSubstr("4 is beyond the last layer; num_layers is 4, so use at most 3")));
  EXPECT_THAT(problems_of(of("qwen2", {"model.sliding_window=9", "model.window_layers=[1, 1]"})),
              ElementsAre(HasSubstr("needs the layers in ascending order, each once")));
  EXPECT_THAT(problems_of(of("llama", {"model.qk_norm=true"})),
              ElementsAre("config: /model/qk_norm: llama has no norms of queries and keys; leave "
                          "it out"));
  EXPECT_THAT(problems_of(of("qwen3", {"model.qk_norm=false"})),
              ElementsAre(HasSubstr("qwen3 has norms of queries and keys")));
}

TEST(ConfigConstraints, ScalingsReadTheirOwnKeys) {
  const auto of = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"model.architecture=llama", "model.ffn_hidden_size=128"});
    return more;
  };
  const std::string type = "model.rope_scaling.rope_type=", factor = "model.rope_scaling.factor=4";
  EXPECT_EQ(
      small_config(of({type + "yarn", factor})).model.rope_scaling.original_max_position_embeddings,
      small_config().model.max_position_embeddings);
  EXPECT_EQ(small_config(of({type + "linear", factor}))
                .model.rope_scaling.original_max_position_embeddings,
            0);
  EXPECT_THAT(problems_of(of({type + "linear"})),
              ElementsAre("config: /model/rope_scaling/factor: must be given for rope_type "
                          "\"linear\""));
  EXPECT_THAT(problems_of(of({factor})),
              ElementsAre("config: /model/rope_scaling/factor: rope_type \"default\" does not read "
                          "it; leave it out"));
  EXPECT_THAT(
      problems_of(of({type + "linear", factor, "model.rope_scaling.beta_fast=3"})),
      ElementsAre(HasSubstr("/model/rope_scaling/beta_fast: rope_type \"linear\" does not")));
  EXPECT_THAT(problems_of(of({type + "llama3", factor, "model.rope_scaling.low_freq_factor=4"})),
              ElementsAre(HasSubstr("4 is not less than high_freq_factor (4)")));
  EXPECT_THAT(problems_of({type + "linear", factor}),
              ElementsAre(HasSubstr("gpt2 has no rotary positions")));
}

TEST(ConfigConstraints, CoverTheProductOfBatchSizes) {
  const std::string data = "parallel.data_parallel_size=2";
  EXPECT_THAT(problems_of({data, "batch.global_batch_size=17", "batch.micro_batch_size=2"}),
              ElementsAre("config: /batch/global_batch_size: 17 is not a multiple of "
                          "micro_batch_size (2) × data_parallel_size (2) = 4; use 16 or 20"));
  EXPECT_THAT(problems_of({data, "batch.global_batch_size=17", "batch.micro_batch_size=2",
                           "batch.gradient_accumulation_steps=4"}),
              ElementsAre("config: /batch/global_batch_size: 17 is not micro_batch_size (2) × "
                          "gradient_accumulation_steps (4) × data_parallel_size (2) = 16; use 16, "
                          "or leave one of the three out"));
  EXPECT_THAT(problems_of({data, "batch.global_batch_size=7"}),
              ElementsAre("config: /batch/global_batch_size: 7 is not a multiple of "
                          "gradient_accumulation_steps (1) × data_parallel_size (2) = 2; use 6 or "
                          "8"));
  EXPECT_THAT(problems_of({"batch={\"gradient_accumulation_steps\": 4}"}),
              ElementsAre(HasSubstr("/batch/global_batch_size: is missing")));
}

TEST(ConfigConstraints, APaddingTokenIsOneOfAModelThatHasIt) {
  const std::vector<std::string> llama{"model.architecture=llama", "model.ffn_hidden_size=96"};
  const auto of_llama = [&](const std::string& padding) {
    auto overrides = llama;
    overrides.push_back("model.pad_token_id=" + padding);
    return overrides;
  };
  EXPECT_EQ(small_config(of_llama("255")).model.pad_token_id, 255);
  EXPECT_EQ(small_config(of_llama("null")).model.pad_token_id, std::nullopt);
  EXPECT_EQ(small_config(llama).model.pad_token_id, std::nullopt);
  EXPECT_THAT(
      problems_of(of_llama("256")),
      ElementsAre("config: /model/pad_token_id: 256 is beyond vocab_size (256); use at most "
                  "255"));
  EXPECT_THAT(problems_of(of_llama("-1")),
              ElementsAre(HasSubstr("/model/pad_token_id: -1 is not")));
  EXPECT_THAT(problems_of(of_llama("1.5")), ElementsAre(HasSubstr("/model/pad_token_id: 1.5 is")));
  EXPECT_THAT(
      problems_of({"model.pad_token_id=0"}),
      ElementsAre("config: /model/pad_token_id: gpt2's embedding has no padding token; leave "
                  "it out, or use deepseek_v3, gpt_oss, llama, mistral, mixtral, olmoe, qwen2, "
                  "qwen2_moe, qwen3 "
                  "or qwen3_moe"));
}

TEST(ConfigConstraints, CoverLayersAndStages) {
  EXPECT_THAT(problems_of({kPipeline + "8"}),
              ElementsAre("config: /parallel/pipeline_model_parallel_size: pipeline (8) × chunks "
                          "(1) = 8 stages, more than num_layers (4); use 4"));
  EXPECT_THAT(problems_of({kPipeline + "4", kChunks + "2"}),
              ElementsAre(HasSubstr("= 8 stages, more than num_layers (4); use 2")));
  EXPECT_THAT(problems_of({kPipeline + "2", "pipeline.layer_split=[1, 2]"}),
              ElementsAre(HasSubstr("/pipeline/layer_split: sums to 3, not to num_layers (4)")));
  EXPECT_THAT(problems_of({kPipeline + "2", "pipeline.layer_split=[1, 2, 1]"}),
              ElementsAre(HasSubstr("has 3 numbers, but pipeline (2) × chunks (1) = 2 stages")));
  EXPECT_THAT(problems_of({kPipeline + "2", "pipeline.layer_split=[0, 4]"}),
              ElementsAre(HasSubstr("each at least 1")));
  EXPECT_THAT(problems_of({"pipeline.layer_split=[]"}), ElementsAre(HasSubstr("is not a list")));
  EXPECT_THAT(problems_of({kPipeline + "2", "pipeline.layer_split=even"}), IsEmpty());
}

TEST(ConfigConstraints, ChunksFitTheSchedule) {
  const std::string schedule = "pipeline.schedule=";
  EXPECT_THAT(
      problems_of({kPipeline + "2", kChunks + "1", schedule + "interleaved_1f1b"}),
      ElementsAre(HasSubstr("1 chunk is too few for schedule \"interleaved_1f1b\"; use 2")));
  for (const char* several :
       {"interleaved_1f1b", "interleaved_zero_bubble", "looped_bfs", "zbv", "dualpipev"}) {
    EXPECT_THAT(problems_of({kPipeline + "2", schedule + several}), IsEmpty());
  }
  EXPECT_THAT(problems_of({kPipeline + "2", kChunks + "1", schedule + "zbv"}),
              ElementsAre(HasSubstr("1 chunk doesn't fit schedule \"zbv\", which has two")));
  EXPECT_THAT(problems_of({kPipeline + "2", kChunks + "2", schedule + "zb_h1"}),
              ElementsAre(HasSubstr("2 chunks don't fit schedule \"zb_h1\"")));
  EXPECT_THAT(problems_of({kPipeline + "2", kChunks + "2", schedule + "gpipe"}),
              ElementsAre(HasSubstr("2 chunks don't fit schedule \"gpipe\"")));
  EXPECT_THAT(problems_of({kPipeline + "2", kChunks + "2",
                           "pipeline.microbatch_group_size_per_vp_stage=2"}),
              IsEmpty());
}

TEST(ConfigConstraints, PipeDreamRefusesKeysThatNeedAFlush) {
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.end(), {kPipeline + "2", "pipeline.schedule=pipedream",
                             "model.tie_word_embeddings=false"});
    return problems_of(more);
  };
  EXPECT_THAT(with({"gradient_clipping=0"}), IsEmpty());
  EXPECT_THAT(with({}), ElementsAre(HasSubstr("/gradient_clipping: 1 needs the norm over all "
                                              "stages at every update")));
  EXPECT_THAT(with({"gradient_clipping=0", "training.on_non_finite=skip"}),
              ElementsAre(HasSubstr("/training/on_non_finite: \"skip\" can't leave out updates")));
  EXPECT_THAT(with({"gradient_clipping=0", "logging.dump_gradients_at=[1]"}),
              ElementsAre(HasSubstr("/logging/dump_gradients_at")));
  EXPECT_THAT(problems_of({kPipeline + "2", "pipeline.schedule=pipedream", "gradient_clipping=0"}),
              ElementsAre(HasSubstr("/model/tie_word_embeddings: the first and the last stage")));
  EXPECT_THAT(problems_of({kPipeline + "2", "pipeline.schedule=pipedream_2bw"}), IsEmpty());
}

TEST(ConfigConstraints, CoverSequenceLengthAndSequenceParallelism) {
  EXPECT_THAT(problems_of({"model.max_position_embeddings=16"}),
              ElementsAre("config: /data/sequence_length: 32 is more than "
                          "model.max_position_embeddings (16); use at most 16"));
  const std::vector<std::string> odd{"parallel.sequence_parallel=true", kTensor + "4",
                                     "batch.micro_batch_size=2", "data.sequence_length=31"};
  EXPECT_THAT(problems_of(odd),
              ElementsAre("config: /parallel/sequence_parallel: micro_batch_size (2) × "
                          "sequence_length (31) = 62 tokens can't be shared by "
                          "tensor_model_parallel_size (4); use a sequence_length of 28"));
  EXPECT_THAT(problems_of({"parallel.sequence_parallel=true", kTensor + "2",
                           "batch.micro_batch_size=2", "data.sequence_length=31"}),
              IsEmpty());
}

TEST(ConfigConstraints, CoverRankOrderNodesAndCollectives) {
  for (const char* order :
       {"dp-tp-pp", "pp-dp-tp", "tp-dp", "pp", "tp-cp-dp-pp", "pp-cp"}) {  // all sizes are 1
    EXPECT_THAT(problems_of({std::string("parallel.rank_order=") + order}), IsEmpty());
  }
  EXPECT_THAT(problems_of({"parallel.rank_order=tp-dp", "parallel.pipeline_model_parallel_size=2"}),
              ElementsAre(HasSubstr("does not name each of tp, dp and pp once")));
  EXPECT_THAT(problems_of({"parallel.rank_order=pp-tp", "parallel.pipeline_model_parallel_size=2"}),
              IsEmpty());
  for (const char* order : {"tp-dp-pp-", "tp-tp-pp", "tpdppp", "tp-dp-ep", "cp-tp-dp-pp-cp"}) {
    EXPECT_THAT(problems_of({std::string("parallel.rank_order=") + order}),
                ElementsAre(HasSubstr("does not name each of tp, dp and pp once")));
  }
  const std::string data = "parallel.data_parallel_size=4";
  EXPECT_THAT(problems_of({data, "runtime.ranks_per_node=3"}),
              ElementsAre("config: /runtime/ranks_per_node: 3 does not divide the number of ranks "
                          "(4); use 1, 2 or 4"));
  EXPECT_THAT(problems_of({data, "runtime.collective_algorithm=ring"}),
              ElementsAre(HasSubstr("\"ring\" doesn't add in rank order on 4 ranks")));
  EXPECT_THAT(
      problems_of({data, "runtime.collective_algorithm=tree", "training.deterministic=false"}),
      IsEmpty());
  EXPECT_THAT(problems_of({"parallel.data_parallel_size=2", "runtime.collective_algorithm=ring"}),
              IsEmpty());
}

TEST(ConfigConstraints, KeysThatWouldDoNothingAreRefused) {
  for (const char* override_text :
       {"optimizer.params.momentum=0.9", "scheduler.power=2", "scheduler.gamma=0.5",
        "scheduler.milestones=[3]", "scheduler.min_lr=1e-5"}) {
    EXPECT_THAT(problems_of({override_text}), ElementsAre(HasSubstr("does nothing for")))
        << override_text;
  }
  EXPECT_THAT(problems_of({"optimizer.type=SGD", "optimizer.params.betas=[0.8, 0.9]",
                           "optimizer.params.momentum=0.9"}),
              ElementsAre("config: /optimizer/params/betas: does nothing for SGD; leave it out, or "
                          "use AdamW"));
}

TEST(ConfigConstraints, CoverTheLearningRateSchedule) {
  const std::string iters = "training.train_iters=100";
  EXPECT_THAT(problems_of({iters, "scheduler.warmup_iters=5", "scheduler.warmup_ratio=0.1"}),
              ElementsAre(HasSubstr("is given together with warmup_ratio")));
  EXPECT_THAT(problems_of({"scheduler.warmup_iters=5", "scheduler.warmup_ratio=0.1"}),
              ElementsAre(HasSubstr("is given together with warmup_ratio")));
  EXPECT_THAT(
      problems_of({iters, "scheduler.warmup_iters=100", "scheduler.type=cosine"}),
      ElementsAre("config: /scheduler/warmup_iters: 100 leaves nothing of training.train_iters "
                  "(100) to type \"cosine\"; set scheduler.warmup_iters to at most 99, "
                  "training.train_iters to more than 100, or scheduler.type to \"constant\""));
  EXPECT_THAT(problems_of({iters, "scheduler.warmup_iters=60", "scheduler.decay_iters=50",
                           "scheduler.type=cosine"}),
              ElementsAre(HasSubstr("60 leaves nothing of scheduler.decay_iters (50)")));
  EXPECT_THAT(problems_of({iters, "scheduler.type=cosine", "scheduler.min_lr=1"}),
              ElementsAre("config: /scheduler/min_lr: 1 is more than optimizer.params.lr (0.001)"));
  EXPECT_THAT(problems_of({iters, "scheduler.type=piecewise"}),
              ElementsAre(HasSubstr("/scheduler/milestones: type \"piecewise\" needs")));
  EXPECT_THAT(problems_of({iters, "scheduler.type=piecewise", "scheduler.milestones=[9, 9]"}),
              ElementsAre(HasSubstr("in ascending order")));
  EXPECT_THAT(problems_of({iters, "scheduler.type=piecewise", "scheduler.milestones=[8, 9]"}),
              IsEmpty());
  EXPECT_THAT(problems_of({iters, "scheduler.type=cosine", "scheduler.num_cycles=2"}),
              ElementsAre(HasSubstr("does nothing for type \"cosine\"")));
  EXPECT_THAT(problems_of({iters, "scheduler.wsd_decay_iters=2"}),
              ElementsAre(HasSubstr("or use type \"wsd\"")));
  EXPECT_THAT(problems_of({iters, "scheduler.type=cosine_with_restarts", "scheduler.num_cycles=91",
                           "scheduler.warmup_iters=10"}),
              ElementsAre(HasSubstr("use at most 45")));
  EXPECT_THAT(problems_of({iters, "scheduler.type=cosine_with_restarts", "scheduler.num_cycles=7",
                           "scheduler.cycle_mult=2"}),
              ElementsAre(HasSubstr("use at most 5")))
      << "2 + 4 + 8 + 16 + 32 of 100";
  EXPECT_THAT(problems_of({iters, "scheduler.type=wsd", "scheduler.warmup_iters=95"}), IsEmpty());
  EXPECT_THAT(problems_of({iters, "scheduler.type=wsd", "scheduler.wsd_decay_iters=91",
                           "scheduler.warmup_iters=10"}),
              ElementsAre(HasSubstr("/scheduler/wsd_decay_iters: 91 is more than")));
  EXPECT_THAT(problems_of({iters, "training.train_epochs=2"}),
              ElementsAre(HasSubstr("is given together with train_iters")));
  EXPECT_THAT(
      problems_of({iters, "logging.dump_gradients_at=[1, 101]"}),
      ElementsAre(HasSubstr("101 is beyond the last iteration, training.train_iters (100)")));
}

TEST(ConfigConstraints, CoverTheData) {
  EXPECT_THAT(problems_of({"data.tokenizer.type=file"}),
              ElementsAre(HasSubstr("/model/vocab_size: must be given"),
                          HasSubstr("/data/tokenizer/path: is missing")));
  EXPECT_THAT(problems_of({"data.tokenizer.path=t.json"}),
              ElementsAre(HasSubstr("does nothing for type \"byte\"")));
  for (const char* split :
       {"\"0,1\"", "\"1,2,3,4\"", "\"1,,1\"", "\"1,-1\"", "\"nan\"", "\"1,\""}) {
    EXPECT_THAT(problems_of({std::string("data.split=") + split}),
                ElementsAre(HasSubstr("/data/split: ")))
        << split;
  }
  EXPECT_THAT(problems_of({"data.split=\"9,1\"", "data.validation=[{\"path\": \"v\"}]"}),
              ElementsAre(HasSubstr("is given together with data.validation")));
}

TEST(ConfigConstraints, TheLargestNumbersDoNotOverflow) {
  EXPECT_THAT(problems_of({"parallel.data_parallel_size=1e6", kTensor + "1e6", kPipeline + "1e6",
                           kChunks + "1e5", "model.num_layers=1e5", "model.hidden_size=1e7",
                           "model.num_attention_heads=1e6", "model.ffn_hidden_size=1e8",
                           "model.vocab_size=1e9", "batch.micro_batch_size=1e6",
                           "batch.gradient_accumulation_steps=1e6", "data.sequence_length=1e7",
                           "parallel.sequence_parallel=true"}),
              ::testing::SizeIs(::testing::Gt(1)));
}

TEST(ConfigConstraints, CoverPrecisionAndItsLossScale) {
  EXPECT_THAT(problems_of({"precision.dtype=fp16", "precision.grad_accum_dtype=fp16"}), IsEmpty());
  EXPECT_THAT(problems_of({"precision.tf32=true"}), IsEmpty());
  EXPECT_THAT(problems_of({"precision.dtype=bf16", "precision.tf32=true"}),
              ElementsAre(HasSubstr(
                  "/precision/tf32: does nothing for dtype \"bf16\"; leave it out, or use "
                  "dtype \"fp32\"")));
  EXPECT_THAT(problems_of({"precision.dtype=bf16", "precision.grad_accum_dtype=fp16"}),
              ElementsAre(HasSubstr("/precision/grad_accum_dtype: \"fp16\" is neither \"fp32\" nor "
                                    "precision.dtype (\"bf16\")")));
  EXPECT_THAT(problems_of({"precision.dtype=bf16", "precision.hysteresis=3"}),
              ElementsAre(HasSubstr("/precision/hysteresis: does nothing for dtype \"bf16\"")));
  EXPECT_THAT(problems_of({"precision.loss_scale=8"}),
              ElementsAre(HasSubstr("/precision/loss_scale: does nothing for dtype \"fp32\"")));
  EXPECT_THAT(problems_of({"precision.dtype=fp16", "precision.loss_scale=8",
                           "precision.loss_scale_window=5"}),
              ElementsAre(HasSubstr("/precision/loss_scale_window: does nothing with a fixed "
                                    "loss_scale (8)")));
  EXPECT_THAT(problems_of({"precision.dtype=fp16", "precision.initial_scale_power=2",
                           "precision.min_loss_scale=8"}),
              ElementsAre(HasSubstr("/precision/min_loss_scale: 8 is above the scale that "
                                    "initial_scale_power (2) begins with; use at most 4")));
  EXPECT_THAT(problems_of({"precision.dtype=fp16", "pipeline.schedule=pipedream",
                           "gradient_clipping=0", "model.tie_word_embeddings=false"}),
              ElementsAre(HasSubstr("/precision/dtype: \"fp16\" leaves out steps that overflow")));
}

TEST(ConfigConstraints, CoverZeroStagesAndRecomputation) {
  EXPECT_THAT(
      problems_of({"zero_optimization.stage=3", "pipeline.schedule=pipedream_2bw"}),
      ElementsAre(HasSubstr("/zero_optimization/stage: 3 keeps one version of the weights in "
                            "shards, but schedule \"pipedream_2bw\"")));
  EXPECT_THAT(problems_of({"zero_optimization.stage=2", "pipeline.schedule=pipedream_2bw"}),
              IsEmpty());
  EXPECT_THAT(problems_of({"zero_optimization.stage3_param_persistence_threshold=-1"}), SizeIs(1));
  EXPECT_THAT(problems_of({"zero_optimization.offload_optimizer={}"}),
              ElementsAre(HasSubstr("/zero_optimization/offload_optimizer: this setting of "
                                    "DeepSpeed is not supported")));
  EXPECT_THAT(problems_of({"precision.dtype=fp16", "precision.loss_scale=1e300"}), SizeIs(1));
  EXPECT_THAT(problems_of({"precision.dtype=fp16", "precision.min_loss_scale=1e-300"}), SizeIs(1));
  EXPECT_THAT(problems_of({"precision.dtype=fp16", "precision.loss_scale=1e-40"}),
              ElementsAre(HasSubstr("/precision/loss_scale: 1e-40 leaves nothing")));
  EXPECT_THAT(problems_of({"optimizer.type=Adafactor", "optimizer.params.betas=[0.5,0.9]"}),
              ElementsAre(HasSubstr("/optimizer/params/betas: does nothing for Adafactor")));
}

TEST(ConfigConstraints, AnAutomaticMicroBatchNeedsAGlobalOneAndTheMemory) {
  EXPECT_THAT(
      problems_of({"batch.micro_batch_size=auto", "batch.global_batch_size=null",
                   "batch.gradient_accumulation_steps=null"}),
      ElementsAre(HasSubstr("/batch/micro_batch_size: \"auto\" divides global_batch_size")));
  EXPECT_THAT(
      problems_of({"batch.micro_batch_size=auto", "batch.global_batch_size=8",
                   "batch.gradient_accumulation_steps=null"}),
      ElementsAre(HasSubstr("/batch/micro_batch_size: \"auto\" needs the memory of a run")));
}

}  // namespace
}  // namespace trident

#include <gmock/gmock.h>

#include "tests/settings/support.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ConfigResolve, AnAutomaticSplitWeighsTheHead) {
  const auto split = [](std::vector<std::string> more) {
    more.insert(more.end(), {"model.num_layers=12", "parallel.pipeline_model_parallel_size=4",
                             "pipeline.layer_split=auto"});
    return small_config(more).pipeline.layer_split;
  };
  // With 256 words the head costs a third of a layer; with 1,024 words more than one.
  EXPECT_EQ(split({}), (std::vector<std::int64_t>{3, 3, 3, 3}));
  EXPECT_EQ(split({"model.vocab_size=1024"}).back(), 2);
  EXPECT_EQ(split({"model.vocab_size=8192"}).back(), 1);
  // A filled-in value loads unchanged.
  EXPECT_EQ(split({"pipeline.layer_split=[1,2,3,6]"}), (std::vector<std::int64_t>{3, 3, 3, 3}));
}

TEST(ConfigDefaults, FollowFromTheModelSizes) {
  const Config config = small_config();
  EXPECT_EQ(config.model.num_query_groups, 4);
  EXPECT_EQ(config.model.ffn_hidden_size, 256);
  EXPECT_EQ(config.model.vocab_size, 256);
  EXPECT_EQ(config.model.max_position_embeddings, 32);
  EXPECT_TRUE(config.model.tie_word_embeddings);
  EXPECT_EQ(config.head_dim(), 16);
  EXPECT_EQ(config.world_size(), 1);
  EXPECT_EQ(config.pipeline.schedule, "1f1b");
  EXPECT_THAT(config.pipeline.layer_split, ElementsAre(4));
  EXPECT_EQ(config.training.train_epochs, 1);
  EXPECT_EQ(config.training.train_iters, 0);
  EXPECT_EQ(config.runtime.device, "cpu");
  EXPECT_EQ(config.runtime.transport, "local");
  EXPECT_EQ(config.runtime.collective_algorithm, "direct");
  EXPECT_EQ(config.logging.dir, "runs/config");
  EXPECT_EQ(small_config({"training.deterministic=false"}).runtime.collective_algorithm, "auto");
  EXPECT_EQ(small_config({"optimizer.type=SGD"}).optimizer.params.weight_decay, 0.0);
}

TEST(ConfigDefaults, LlamaIsUntiedAndMustNameItsMlpWidth) {
  EXPECT_THAT(problems_of({"model.architecture=llama"}),
              ElementsAre("config: /model/ffn_hidden_size: must be given for llama; about 8/3 of "
                          "hidden_size (64) is usual: 192"));
  const Config llama = small_config({"model.architecture=llama", "model.ffn_hidden_size=176"});
  EXPECT_FALSE(llama.model.tie_word_embeddings);
  EXPECT_EQ(llama.model.num_query_groups, 4);
}

TEST(ConfigDefaults, TooManyStagesAreRefusedTogetherWithAnUnknownSchedule) {
  EXPECT_THAT(problems_of({"pipeline.schedule=nonsense", "pipeline.layer_split=auto",
                           "parallel.pipeline_model_parallel_size=5",
                           "parallel.virtual_pipeline_model_parallel_size=1"}),
              ElementsAre(HasSubstr("/pipeline/schedule: \"nonsense\" is not"),
                          HasSubstr("5 stages, more than num_layers (4); use 4")));
}

TEST(ConfigDefaults, BatchSizesAreDerivedFromEachOther) {
  const auto batch = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"batch={}", "parallel.data_parallel_size=2"});
    return small_config(overrides).batch;
  };
  const std::string global = "batch.global_batch_size=24";
  const std::string micro = "batch.micro_batch_size=3";
  const std::string steps = "batch.gradient_accumulation_steps=4";
  const BatchConfig all{24, 3, 4};
  EXPECT_EQ(batch({global, micro}), all);
  EXPECT_EQ(batch({global, steps}), all);
  EXPECT_EQ(batch({micro, steps}), all);
  EXPECT_EQ(batch({global, micro, steps}), all);
  EXPECT_EQ(batch({global}), (BatchConfig{24, 12, 1}));
  EXPECT_EQ(batch({micro}), (BatchConfig{6, 3, 1}));
}

TEST(ConfigDefaults, DataParallelSizeComesFromTheRanks) {
  const std::vector<std::string> sizes{"parallel.tensor_model_parallel_size=2",
                                       "parallel.pipeline_model_parallel_size=2"};
  EXPECT_EQ(small_config(sizes, {.ranks = 8}).parallel.data_parallel_size, 2);
  EXPECT_EQ(small_config(sizes).parallel.data_parallel_size, 1);
  EXPECT_THAT(problems_of(sizes, {.ranks = 6}),
              ElementsAre("config: /parallel/data_parallel_size: 6 ranks are not a multiple of "
                          "tensor (2) × pipeline (2) = 4; run 4 or 8 ranks"));
  EXPECT_THAT(problems_of({"parallel.data_parallel_size=auto"}),
              ElementsAre(HasSubstr("\"auto\" needs the number of ranks; give --ranks N")));
  EXPECT_THAT(problems_of({"parallel.data_parallel_size=4"}, {.ranks = 2}),
              ElementsAre("config: /parallel/data_parallel_size: data (4) × tensor (1) × pipeline "
                          "(1) = 4, but the number of ranks is 2; use 2 here"));
}

TEST(ConfigDefaults, DeviceAndTransportFollowTheMachine) {
  const auto runtime = [](LoadOptions options, const std::string& ranks) {
    return small_config({"parallel.data_parallel_size=" + ranks}, options);
  };
  const Config none = runtime({}, "2");
  EXPECT_EQ(none.runtime.device, "cpu");
  EXPECT_EQ(none.runtime.transport, "local");
  EXPECT_TRUE(none.training.deterministic);
  const Config shared = runtime({.device = "cuda", .gpus = 1}, "2");
  EXPECT_EQ(shared.runtime.device, "cuda");
  EXPECT_EQ(shared.runtime.transport, "local");  // two ranks on one GPU
  EXPECT_FALSE(shared.training.deterministic);
  EXPECT_EQ(runtime({.device = "cuda", .gpus = 2}, "2").runtime.transport, "nccl");
  EXPECT_EQ(runtime({.device = "cuda", .gpus = 2}, "1").runtime.transport, "local");
  const LoadOptions mpirun{
      .ranks = 4, .local_ranks = 2, .transport = "mpi", .device = "cuda", .gpus = 2};
  EXPECT_EQ(runtime(mpirun, "4").runtime.transport, "nccl");
}

TEST(ConfigDefaults, LayersGoEvenlyToTheStagesTheRemainderToTheEarliest) {
  const auto split = [](const std::string& layers, const std::string& pipeline,
                        const std::string& chunks) {
    return small_config({"model.num_layers=" + layers,
                         "parallel.pipeline_model_parallel_size=" + pipeline,
                         "parallel.virtual_pipeline_model_parallel_size=" + chunks})
        .pipeline;
  };
  EXPECT_THAT(split("11", "4", "1").layer_split, ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(split("7", "2", "2").layer_split, ElementsAre(2, 2, 2, 1));
  EXPECT_EQ(split("7", "2", "2").schedule, "interleaved_1f1b");
}

TEST(ConfigDefaults, CoresAreSharedByTheRanksOfThisMachine) {
  const std::string data = "parallel.data_parallel_size=4";
  EXPECT_EQ(small_config({data}, {.cores = 9}).runtime.threads_per_rank, 2);
  EXPECT_EQ(small_config({data}, {.cores = 2}).runtime.threads_per_rank, 1);
  EXPECT_EQ(small_config({data}, {.local_ranks = 2, .cores = 9}).runtime.threads_per_rank, 4);
  // The transport finds the nodes, so nothing is filled in.
  EXPECT_EQ(small_config({data}, {.local_ranks = 2}).runtime.ranks_per_node, 0);
  EXPECT_EQ(small_config({data, "runtime.ranks_per_node=2"}, {.cores = 8}).runtime.threads_per_rank,
            2);
}

TEST(ConfigDefaults, VocabularyIsPaddedForTheTensorRanks) {
  Config config = small_config({"model.vocab_size=50257"});
  EXPECT_EQ(config.padded_vocab_size(), 50304);
  config.parallel.tensor_model_parallel_size = 4;
  EXPECT_EQ(config.padded_vocab_size(), 50688);
}

TEST(ConfigDefaults, WarmUpAndDecayFollowTheIterations) {
  const Config config = small_config({"training.train_iters=200", "scheduler.warmup_ratio=0.07"});
  EXPECT_EQ(config.scheduler.warmup_iters, 14);
  EXPECT_EQ(config.scheduler.decay_iters, 200);

  Config epochs = small_config(
      {"training.train_epochs=3", "scheduler.warmup_ratio=0.1", "scheduler.type=linear"});
  EXPECT_EQ(epochs.training.train_iters, 0);
  set_train_iters(epochs, 50);
  EXPECT_EQ(epochs.scheduler.warmup_iters, 5);
  EXPECT_EQ(epochs.scheduler.decay_iters, 50);

  Config late = small_config({"scheduler.warmup_iters=60", "scheduler.type=linear"});
  EXPECT_THROW(set_train_iters(late, 50), RequestError);
}

TEST(ConfigDefaults, WsdDecaysOverATenth) {
  const auto decay = [](const std::vector<std::string>& overrides) {
    return small_config(overrides).scheduler.wsd_decay_iters;
  };
  EXPECT_EQ(decay({"training.train_iters=200", "scheduler.type=wsd"}), 20);
  EXPECT_EQ(decay({"training.train_iters=5", "scheduler.type=wsd"}), 1);
  EXPECT_EQ(decay({"training.train_iters=200", "scheduler.type=cosine"}), 0);
  Config epochs = small_config({"training.train_epochs=2", "scheduler.type=wsd"});
  EXPECT_EQ(epochs.scheduler.wsd_decay_iters, 0);
  set_train_iters(epochs, 50);
  EXPECT_EQ(epochs.scheduler.wsd_decay_iters, 5);
}

TEST(ConfigDefaults, SplitBecomesFractions) {
  const auto parts = small_config({"data.split=\"6,3,1\""}).data.split_fractions();
  EXPECT_DOUBLE_EQ(parts[0], 0.6);
  EXPECT_DOUBLE_EQ(parts[1], 0.3);
  EXPECT_DOUBLE_EQ(parts[2], 0.1);
  EXPECT_THAT(small_config({"data.split=\"3,1\""}).data.split_fractions(),
              ElementsAre(0.75, 0.25, 0.0));
  EXPECT_THAT(small_config().data.split_fractions(), ElementsAre(1.0, 0.0, 0.0));
}

}  // namespace
}  // namespace trident

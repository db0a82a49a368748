#include <gmock/gmock.h>

#include "tests/settings/support.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Lines = std::vector<std::string>;

TEST(ConfigParse, ATypoAtEachLevelIsRefusedWithTheNearestName) {
  EXPECT_THAT(problems_of({"modle.num_layers=4"}),
              ElementsAre("config: /modle: unknown key; did you mean model?"));
  EXPECT_THAT(problems_of({"model.num_layer=4"}),
              ElementsAre("config: /model/num_layer: unknown key; did you mean num_layers?"));
  EXPECT_THAT(problems_of({"optimizer.params.weight_decy=0"}),
              ElementsAre("config: /optimizer/params/weight_decy: unknown key; did you mean "
                          "weight_decay?"));
  EXPECT_THAT(problems_of({R"(data.train=[{"path": "a", "wieght": 2}])"}),
              ElementsAre("config: /data/train/0/wieght: unknown key; did you mean weight?"));
  EXPECT_THAT(problems_of({"lr=1"}),
              ElementsAre("config: /lr: unknown key; did you mean /optimizer/params/lr?"));
  EXPECT_THAT(problems_of({"model.sequence_length=8"}),
              ElementsAre("config: /model/sequence_length: unknown key; did you mean "
                          "/data/sequence_length?"));
}

TEST(ConfigParse, AutoInPlaceOfTheLayoutIsRecognised) {
  const LoadedConfig loaded =
      parse(kSmallConfig, {"parallel=auto"}, {.ranks = 6, .cores = 12}, "config.json");
  EXPECT_TRUE(loaded.parallel_is_auto);
  EXPECT_EQ(loaded.config.world_size(), 1);
  EXPECT_EQ(loaded.config.runtime.threads_per_rank, 2);  // for one rank of the job
  EXPECT_THAT(loaded.written, Not(HasSubstr("parallel")));
  // Keys of a layout may be given for the planner. A single rank doesn't use them.
  const LoadedConfig given = parse(
      kSmallConfig, {"parallel=auto", "pipeline.layer_split=[1,3]", "batch.micro_batch_size=4",
                     "batch.gradient_accumulation_steps=2", "pipeline.schedule=interleaved_1f1b"});
  EXPECT_EQ(given.config.stages(), 1);
  EXPECT_THAT(given.written, HasSubstr("interleaved_1f1b"));
  EXPECT_THAT(problems_of({"parallel=auto", "zero_optimization.stage=two"}),
              ElementsAre(HasSubstr("config: /zero_optimization/stage: \"two\" is not")));
  // From a config as it ran, everything is derived again.
  const LoadedConfig ran = parse(kSmallConfig, {"parallel.data_parallel_size=2"});
  EXPECT_TRUE(parse(ran.filled_in, {"parallel=auto"}, {.ranks = 4}).parallel_is_auto);
  // The planner writes its choice after "parallel=auto".
  const LoadedConfig chosen =
      parse(kSmallConfig, {"parallel=auto", "parallel={}", "parallel.data_parallel_size=2"},
            {.ranks = 2});
  EXPECT_FALSE(chosen.parallel_is_auto);
  EXPECT_EQ(chosen.config.world_size(), 2);
  EXPECT_FALSE(parse(kSmallConfig).parallel_is_auto);

  EXPECT_THAT(problems_of({"parallel=even"}),
              ElementsAre("config: /parallel: \"even\" is not an object of keys, nor \"auto\""));
  EXPECT_THAT(problems_of({"pipeline=auto"}),
              ElementsAre("config: /pipeline: \"auto\" is not an object of keys"));
}

TEST(ConfigParse, AWrongTypeIsRefused) {
  const std::string integer = " is not an integer at least 1 and at most 100000";
  EXPECT_THAT(problems_of({"model.num_layers=four"}),
              ElementsAre("config: /model/num_layers: \"four\"" + integer));
  EXPECT_THAT(problems_of({"model.num_layers=1.5"}),
              ElementsAre("config: /model/num_layers: 1.5" + integer));
  EXPECT_THAT(problems_of({"model.num_layers=[4]"}), SizeIs(1));
  EXPECT_THAT(problems_of({"data.shuffle=1"}),
              ElementsAre("config: /data/shuffle: 1 is not true or false"));
  EXPECT_THAT(problems_of({"optimizer.params.lr=\"fast\""}),
              ElementsAre("config: /optimizer/params/lr: \"fast\" is not a number at least 1.2e-38 "
                          "and at most 3.4e+38, or 0"));
  EXPECT_THAT(problems_of({"logging.dir=3"}),
              ElementsAre("config: /logging/dir: 3 is not a string that isn't empty"));
  EXPECT_THAT(problems_of({"logging.dir="}), SizeIs(1));
  EXPECT_THAT(problems_of({"optimizer.params.betas=[0.9]"}), SizeIs(1));
  EXPECT_THAT(problems_of({"model=7"}),
              ::testing::Contains("config: /model: 7 is not an object of keys"));
  EXPECT_THAT(problems_of({"data.train=text.txt"}),
              ElementsAre(HasSubstr("/data/train: \"text.txt\" is not a list of sources")));
  EXPECT_THAT(problems_of({"data.train.0=text.txt"}),
              ElementsAre("config: /data/train/0: \"text.txt\" is not an object with path and "
                          "weight"));
}

TEST(ConfigParse, ANumberOutOfRangeIsRefused) {
  EXPECT_THAT(problems_of({"model.num_layers=0"}), SizeIs(1));
  EXPECT_THAT(problems_of({"model.hidden_size=-64"}), SizeIs(1));
  EXPECT_THAT(problems_of({"model.hidden_size=99999999999999999999"}), SizeIs(1));
  EXPECT_THAT(problems_of({"model.hidden_size=18446744073709551615"}), SizeIs(1));
  EXPECT_THAT(problems_of({"model.hidden_dropout=1"}),
              ElementsAre("config: /model/hidden_dropout: 1 is not a number at least 1.2e-38 "
                          "and at most 0.9999999, or 0"));
  EXPECT_THAT(problems_of({"optimizer.params.betas=[0.9, 1.0]"}),
              ElementsAre("config: /optimizer/params/betas: [0.9,1.0] is not a list of two "
                          "numbers, each at least 1.2e-38 and at most 0.9999999, or 0"));
  EXPECT_THAT(problems_of({"optimizer.params.eps=0"}), SizeIs(1));
  EXPECT_THAT(problems_of({"data.train.0.weight=0"}),
              ElementsAre("config: /data/train/0/weight: 0 is not a number above 0"));
  EXPECT_THAT(problems_of({"zero_optimization.stage=4"}), SizeIs(1));
  EXPECT_THAT(problems_of({"runtime.timeout_seconds=0.0005"}),
              ElementsAre("config: /runtime/timeout_seconds: 0.0005 is not a number at least 0.001 "
                          "and at most 1000000"));
}

// 1e-50 would be 0 in fp32, and give 0 / 0 in the rows of tokens that were never seen.
TEST(ConfigParse, ANumberThatFp32DoesNotHoldIsRefused) {
  const std::string positive[] = {"model.norm_epsilon", "model.init_method_std",
                                  "optimizer.params.eps"};
  const std::string or_zero[] = {"optimizer.params.lr", "optimizer.params.weight_decay",
                                 "gradient_clipping"};
  const std::string below_one[] = {"model.hidden_dropout", "model.attention_dropout",
                                   "training.label_smoothing"};
  for (const std::string& key : positive) {
    for (const char* value : {"1e-50", "1e-40", "0", "1e39", "1e300", "-1"}) {
      EXPECT_THAT(problems_of({key + "=" + value}), SizeIs(1)) << key << " " << value;
    }
    EXPECT_THAT(problems_of({key + "=1.2e-38"}), SizeIs(0)) << key;
  }
  for (const std::string& key : or_zero) {
    for (const char* value : {"1e-50", "1e39"}) {
      EXPECT_THAT(problems_of({key + "=" + value}), SizeIs(1)) << key << " " << value;
    }
    EXPECT_THAT(problems_of({key + "=0"}), SizeIs(0)) << key;
  }
  for (const std::string& key : below_one) {
    for (const char* value : {"1e-50", "0.99999999", "1"}) {
      EXPECT_THAT(problems_of({key + "=" + value}), SizeIs(1)) << key << " " << value;
    }
    EXPECT_THAT(problems_of({key + "=0.9999999"}), SizeIs(0)) << key;
  }
  EXPECT_LT(static_cast<float>(0.9999999), 1.0f);
  for (const char* betas : {"[0.9, 0.99999999]", "[0.99999999, 0.9]", "[1e-60, 0.9]"}) {
    EXPECT_THAT(problems_of({std::string("optimizer.params.betas=") + betas}), SizeIs(1)) << betas;
  }
  EXPECT_THAT(problems_of({"optimizer.type=SGD", "optimizer.params.momentum=0.99999999"}),
              SizeIs(1));
  EXPECT_THAT(problems_of({"optimizer.params.betas=[0, 0.999999]"}), SizeIs(0));
  EXPECT_THAT(problems_of({"model.architecture=llama", "model.ffn_hidden_size=128",
                           "model.rotary_base=1.00000001"}),
              SizeIs(1));
}

TEST(ConfigParse, AnUnknownChoiceNamesTheNearest) {
  EXPECT_THAT(problems_of({"precision.dtype=bf61"}),
              ElementsAre("config: /precision/dtype: \"bf61\" is not \"fp32\", \"bf16\" or "
                          "\"fp16\"; did you mean \"bf16\"?"));
  EXPECT_THAT(
      problems_of({"model.architecture=lama"}),
      ElementsAre(
          "config: /model/architecture: \"lama\" is not \"deepseek_v3\", \"gpt2\", "
          "\"gpt_oss\", \"llama\", \"mistral\", \"mixtral\", \"olmoe\", \"qwen2\", \"qwen2_moe\", "
          "\"qwen3\" or \"qwen3_moe\"; did you mean "
          "\"llama\"?"));
}

TEST(ConfigParse, AllProblemsAreReportedAtOnceAndEachOnce) {
  EXPECT_THAT(problems_of({"model.num_heads=2", "model.num_attention_heads=\"4\"",
                           "parallel.tensor_model_parallel_size=3", "batch.micro_batch_size=3",
                           "optimizer.type=Adm", "data.train=null"}),
              ElementsAre(HasSubstr("/model/num_heads: unknown key"),
                          HasSubstr("/model/num_attention_heads: \"4\" is not an integer"),
                          HasSubstr("/optimizer/type: \"Adm\" is not"),
                          HasSubstr("/data/train: is missing"),
                          HasSubstr("/batch/global_batch_size: 8 is not a multiple")));
}

TEST(ConfigParse, MissingKeysAreNamed) {
  EXPECT_THAT(problems_of({}, {}, "{}"),
              ElementsAre(HasSubstr("/model/num_layers: is missing"),
                          HasSubstr("/model/hidden_size: is missing"),
                          HasSubstr("/model/num_attention_heads: is missing"),
                          HasSubstr("/data/train: is missing"),
                          HasSubstr("/data/sequence_length: is missing"),
                          HasSubstr("/batch/global_batch_size: is missing")));
}

TEST(ConfigParse, SyntaxErrorsNameTheFileAndTheLine) {
  const auto problems = [](const std::string& text) { return problems_of({}, {}, text); };
  EXPECT_THAT(problems("{\n  \"model\": {,}}"),
              ElementsAre(HasSubstr("config: config.json:2:13: ")));
  EXPECT_THAT(problems("{\"data\": {\"seed\": 1, \"seed\": 2}}"),
              ElementsAre("config: config.json:1:22: /data/seed: this key occurs twice"));
  EXPECT_THAT(problems(std::string(100000, '[')), ElementsAre(HasSubstr("nested deeper than 64")));
  EXPECT_THAT(problems("[]"), ElementsAre(HasSubstr("must be an object")));
}

TEST(ConfigOverrides, SetValuesOfEveryKindAndTakeKeysOut) {
  const Config config = small_config(
      {"optimizer.params.lr=5e-4", "data.train.0.path=other.txt", "logging.dir=out/a=b",
       "data.shuffle=false", "pipeline.layer_split=[3, 1]",
       "parallel.pipeline_model_parallel_size=2", "zero_optimization.reduce_bucket_size=5e8",
       R"(data.validation={"a": [{"path": "v", "weight": 2}], "b": [{"path": "w"}]})",
       "batch.global_batch_size=null", "batch.micro_batch_size=4"});
  EXPECT_EQ(config.optimizer.params.lr, 5e-4);
  EXPECT_EQ(config.data.train, (std::vector<DataSource>{{"other.txt", 1.0}}));
  EXPECT_EQ(config.logging.dir, "out/a=b");
  EXPECT_FALSE(config.data.shuffle);
  EXPECT_THAT(config.pipeline.layer_split, ElementsAre(3, 1));
  EXPECT_EQ(config.zero_optimization.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(config.data.validation,
            (std::vector<ValidationSet>{{"a", {{"v", 2.0}}}, {"b", {{"w", 1.0}}}}));
  EXPECT_EQ(config.batch.global_batch_size, 4);
}

TEST(ConfigOverrides, ABadPathIsRefused) {
  EXPECT_THAT(problems_of({"model.num_layers"}), ElementsAre(HasSubstr("must be key.key=value")));
  EXPECT_THAT(problems_of({"model..num_layers=1"}), ElementsAre(HasSubstr("is empty")));
  EXPECT_THAT(problems_of({"data.train.1.path=x"}),
              ElementsAre("config: --set data.train.1.path=x: \"1\" is not an element of a list of "
                          "1 (they count from 0)"));
  EXPECT_THAT(problems_of({"model.num_layers.x=1", "=3"}),
              ElementsAre(HasSubstr("\"x\" is below a value that has no keys"),
                          HasSubstr("must be key.key=value")));
  EXPECT_THAT(problems_of({"logging.dir=\xff"}), ElementsAre(HasSubstr("not UTF-8")));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "a.";
  EXPECT_THAT(problems_of({deep + "a=1"}), ElementsAre(HasSubstr("too many keys")));
}

}  // namespace
}  // namespace trident

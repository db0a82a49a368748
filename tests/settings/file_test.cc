// Tests the files of configs: with comments, extending other files, without a model of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "support/temp_dir.h"
#include "tests/settings/support.h"

namespace trident {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using trident::testing::spit;
using trident::testing::TempDir;

std::vector<std::string> problems_of_file(const std::string& path) {
  try {
    load(path);
    return {};
  } catch (const RequestError& error) {
    return error.problems();
  }
}

TEST(ConfigFile, TakesCommentsAndTheAddressOfASchema) {
  std::string text = kSmallConfig;
  text.insert(1,
              "\n// of a line, \"with quotes\"\n\"$schema\": \"./schema.json\", /* and\nblocks */");
  EXPECT_EQ(parse(text).config, small_config());
  EXPECT_THAT(problems_of({}, {}, "{ // one\n /* two\n */ \"model\": {,}}"),
              ElementsAre(HasSubstr("config.json:3:15: ")));
  EXPECT_THAT(problems_of({}, {}, "{ /* never closed }"), ElementsAre(HasSubstr("config.json:1:")));
  EXPECT_THAT(problems_of({}, {}, R"({"$schema": 3})"), ElementsAre(HasSubstr("/$schema: ")));
  // In other places "$schema" is an unknown key.
  EXPECT_THAT(problems_of({"model.$schema=x"}), ElementsAre(HasSubstr("/model/$schema: unknown")));
  EXPECT_THROW(parse_json("[1] // no config", "x"), RequestError);
}

TEST(ConfigFile, BeginsFromOthers) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "bases/deeper");
  spit(dir / "bases/small.json", kSmallConfig);
  spit(dir / "bases/deeper/wide.json", R"({
    "extends": "../small.json",  // from its own folder
    "model": {"hidden_size": 128}, "data": {"seed": 5, "train": [{"path": "a"}, {"path": "b"}]}})");
  spit(dir / "bases/rates.json",
       R"({"optimizer": {"params": {"lr": 0.5, "eps": 1e-6}}, "data": {"seed": 6}})");
  spit(dir / "own.json", R"({"extends": ["bases/deeper/wide.json", "bases/rates.json"],
    "model": {"num_layers": 2}, "optimizer": {"params": {"eps": null}},
    "data": {"train": [{"path": "c"}]}})");
  const LoadedConfig loaded = load(dir / "own.json", {"training.seed=9"});
  EXPECT_EQ(loaded.config,
            load(dir / "bases/small.json",
                 {"model.hidden_size=128", "model.num_layers=2", "optimizer.params.lr=0.5",
                  "data.seed=6", "data.train.0.path=c", "training.seed=9", "logging.dir=runs/own"})
                .config);
  // The written config is complete, and loads without the other files.
  EXPECT_EQ(parse(loaded.written, {}, {}, "own.json").config, loaded.config);
  EXPECT_TRUE(is_written(loaded.written, "/data/seed"));
  EXPECT_FALSE(is_written(loaded.written, "/optimizer/params/eps"));
}

TEST(ConfigFile, TheFilesThatItExtendsMustExist) {
  const TempDir dir;
  spit(dir / "a.json", R"({"extends": "b.json"})");
  EXPECT_THAT(problems_of_file(dir / "a.json"),
              ElementsAre(AllOf(HasSubstr("a.json: /extends: "), HasSubstr("b.json: can't open"))));
  spit(dir / "b.json", R"({"extends": "./a.json"})");
  EXPECT_THAT(problems_of_file(dir / "a.json"),
              ElementsAre(HasSubstr("a.json: /extends: leads back")));
  spit(dir / "b.json", "{\n  \"model\": 3,,}");
  EXPECT_THAT(problems_of_file(dir / "a.json"), ElementsAre(HasSubstr("b.json:2:14: ")));
  spit(dir / "b.json", "[]");
  EXPECT_THAT(problems_of_file(dir / "a.json"),
              ElementsAre(HasSubstr("b.json: the document must")));
  for (const char* extends : {"3", "\"\"", "[\"b.json\", {}]", "{}", "\"b.json\\u0000x\""}) {
    spit(dir / "a.json", std::string("{\"extends\": ") + extends + "}");
    EXPECT_THAT(problems_of_file(dir / "a.json"), ElementsAre(HasSubstr("a.json: /extends: ")));
  }
  // Each file extends the next one twice, so the number of files doubles each time.
  for (int i = 0; i < 40; ++i) {
    const std::string next = std::to_string(i + 1) + ".json";
    spit(dir / (std::to_string(i) + ".json"),
         "{\"extends\": [\"" + next + "\", \"" + next + "\"]}");
  }
  EXPECT_THAT(problems_of_file(dir / "0.json"), ElementsAre(HasSubstr("more than 32 files")));
  EXPECT_THAT(problems_of({}, {}, R"({"extends": "a.json"})"),
              ElementsAre(HasSubstr("from a file")));
}

TEST(ConfigFile, TakesTheModelOfTheWeightsThatItLoads) {
  LoadOptions options;
  options.saved_model = [](const std::string& path) -> std::string {
    if (path != "saved") throw RequestError(path + ": no such folder");
    return R"({"architecture": "llama", "num_layers": 3, "hidden_size": 48,
               "num_attention_heads": 4, "ffn_hidden_size": 96, "norm_epsilon": 1e-6,
               "pad_token_id": 3})";
  };
  const std::string text = R"({"batch": {"global_batch_size": 8}, "checkpoint": {"load": "saved"},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 32}})";
  const LoadedConfig loaded = parse(text, {}, options);
  const ModelConfig& model = loaded.config.model;
  EXPECT_EQ(model.architecture, "llama");
  EXPECT_EQ(model.num_layers, 3);
  EXPECT_EQ(model.num_query_groups, 4);
  EXPECT_EQ(model.norm_epsilon, 1e-6);
  // Keys that the config has itself win.
  EXPECT_EQ(parse(text, {"model.norm_epsilon=1e-5"}, options).config.model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.pad_token_id, 3);
  EXPECT_EQ(parse(text, {"model.pad_token_id=null"}, options).config.model.pad_token_id,
            std::nullopt);
  // The model's keys are not written by the user, but they are filled in, and the run's config
  // needs no folder.
  EXPECT_FALSE(is_written(loaded.written, "/model/num_layers"));
  EXPECT_EQ(parse(loaded.filled_in).config, loaded.config);
  EXPECT_EQ(parse(loaded.filled_in, {"model.num_layers=5"}, options).config.model.num_layers, 5);
  EXPECT_THAT(problems_of({"checkpoint.load=none"}, options, text),
              ElementsAre("config: /checkpoint/load: none: no such folder"));
  EXPECT_THAT(problems_of({"checkpoint.load=none"}, options), ElementsAre())
      << "the reader of the weights reports it";
  EXPECT_THAT(problems_of({"checkpoint.load=7", "checkpoint.save=out"}, options, text),
              Contains(HasSubstr("/model/num_layers: is missing")));
  EXPECT_EQ(parse(text, {"parallel=auto"}, options).config.model.num_layers, 3);
}

TEST(ConfigFile, TakesTheExpertsOfTheWeightsKeyByKey) {
  LoadOptions options;
  options.saved_model = [](const std::string&) -> std::string {
    return R"({"architecture": "mixtral", "num_layers": 2, "hidden_size": 48,
               "num_attention_heads": 4, "ffn_hidden_size": 96, "sliding_window": null,
               "window_layers": null,
               "moe": {"num_experts": 6, "router_topk": 3, "layer_freq": [1, 1],
                       "router_load_balancing_type": "none", "aux_loss_coeff": 0.02}})";
  };
  const std::string text = R"({"batch": {"global_batch_size": 8}, "checkpoint": {"load": "saved"},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 32}})";
  const auto moe = [&](const std::vector<std::string>& set) {
    return parse(text, set, options).config.model.moe;
  };
  EXPECT_EQ(moe({}).num_experts, 6);
  EXPECT_EQ(moe({}).router_load_balancing_type, "none");
  EXPECT_EQ(moe({"model.moe.z_loss_coeff=0.1"}).router_topk, 3);
  EXPECT_EQ(moe({"model.moe.z_loss_coeff=0.1", "model.sliding_window=null"}).num_experts, 6);
  // A factor asks for the loss.
  EXPECT_EQ(moe({"model.moe.aux_loss_coeff=0.5"}).router_load_balancing_type, "seq_aux_loss");
  EXPECT_EQ(moe({"model.moe.aux_loss_coeff=0"}).router_load_balancing_type, "none");
  // The code that reads the weights says that these differ.
  EXPECT_EQ(moe({"model.num_layers=3"}).layers().size(), 3);
  EXPECT_FALSE(moe({"model.architecture=llama"}).has_experts());
}

// A rotary scaling that the config gives in part is completed by the weights', unless it is of
// another type.
TEST(ConfigFile, TakesTheRotaryScalingOfTheWeightsKeyByKeyIfItsTypeAgrees) {
  LoadOptions options;
  options.saved_model = [](const std::string&) -> std::string {
    return R"({"architecture": "llama", "num_layers": 2, "hidden_size": 48,
               "num_attention_heads": 4, "ffn_hidden_size": 96, "max_position_embeddings": 64,
               "rope_scaling": {"rope_type": "yarn", "factor": 2.5, "beta_fast": 8,
                                "original_max_position_embeddings": 24}})";
  };
  const std::string text = R"({"batch": {"global_batch_size": 8}, "checkpoint": {"load": "saved"},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 32}})";
  const auto scaling = [&](const std::string& written) {
    return parse(text, {"model.rope_scaling=" + written}, options).config.model.rope_scaling;
  };
  const RopeScalingConfig saved = parse(text, {}, options).config.model.rope_scaling;
  EXPECT_EQ(saved.rope_type, "yarn");
  EXPECT_EQ(saved.factor, 2.5);
  EXPECT_EQ(saved.beta_fast, 8);
  EXPECT_EQ(saved.original_max_position_embeddings, 24);
  EXPECT_EQ(scaling(R"({"rope_type": "yarn"})"), saved);
  EXPECT_EQ(scaling("{}"), saved);
  RopeScalingConfig wider = saved;
  wider.factor = 4;
  EXPECT_EQ(scaling(R"({"factor": 4})"), wider);
  EXPECT_EQ(scaling(R"({"rope_type": "yarn", "factor": 4})"), wider);
  // No key of another type is taken: beta_fast would be refused.
  const RopeScalingConfig linear = scaling(R"({"rope_type": "linear", "factor": 4})");
  EXPECT_EQ(linear.rope_type, "linear");
  EXPECT_EQ(linear.factor, 4);
  EXPECT_EQ(linear.beta_fast, RopeScalingConfig().beta_fast);
  EXPECT_EQ(scaling(R"({"rope_type": "default"})").factor, RopeScalingConfig().factor);
  EXPECT_THAT(problems_of({R"(model.rope_scaling={"rope_type": "linear"})"}, options, text),
              ElementsAre(HasSubstr("/model/rope_scaling/factor: must be given for rope_type")));
}

}  // namespace
}  // namespace trident

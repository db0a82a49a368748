#include "engine/setup/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "engine/setup/registry.h"
#include "planner/plan/plan.h"
#include "settings/config.h"
#include "support/temp_dir.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;

// Each preset loads unchanged and has the model's published number of parameters. For a preset
// without a number here no exact number was published.
TEST(Presets, HaveThePublishedSizesOfTheirModels) {
  const std::map<std::string, std::int64_t> published{
      {"gpt2_124m", 124'439'808},
      {"gpt2_355m", 354'823'168},
      {"gpt2_774m", 774'030'080},
      {"gpt2_1.5b", 1'557'611'200},
      {"llama_135m", 134'515'008},
      {"llama_1b", 1'235'814'400},
      {"llama_3b", 3'212'749'824},
      {"llama_8b", 8'030'261'248},
      {"llama_8b_128k", 8'030'261'248},
      {"llama_70b", 70'553'706'496},
      {"llama_405b", 405'853'388'800},
      {"qwen3_30b_a3b", 30'532'122'624},
      // transformers' model of the published config.json, without the biases.
      {"deepseek_v3", 671'026'404'352}};
  std::size_t counted = 0;
  for (const Preset& preset : presets()) {
    SCOPED_TRACE(preset.name);
    const std::string text = preset_config(preset.name, "mine", *built_in_constraints());
    const LoadedConfig loaded = parse_config(
        text, {"parallel=null", "batch.micro_batch_size=1", "batch.global_batch_size=2"},
        {.constraints = built_in_constraints(), .ranks = 2});
    EXPECT_EQ(loaded.config.checkpoint.save, "runs/mine/weights");
    // The preset unchanged; the "auto" values of its layout stay.
    parse_config(text, {"batch.micro_batch_size=1"}, {.constraints = built_in_constraints()});
    const auto known = published.find(preset.name);
    if (known == published.end()) continue;
    ++counted;
    const Plan plan = make_plan(loaded.config, *architecture_of(loaded.config));
    EXPECT_EQ(plan.parameters, known->second);
  }
  EXPECT_EQ(counted, published.size());
  EXPECT_THAT(
      message_of<RequestError>([] { preset_config("gpt_124", "x", *built_in_constraints()); }),
      HasSubstr("did you mean gpt2_124m?"));
}

TEST(Presets, DescribeTheirKeys) {
  const std::string text = preset_config("bytes", "mine", *built_in_constraints());
  EXPECT_THAT(text, HasSubstr("    // Transformer layers.\n    \"num_layers\": 4,\n"));
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 100u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

}  // namespace
}  // namespace trident::testing

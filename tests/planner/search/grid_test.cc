#include "planner/search/grid.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/planner/planner_machines.h"

namespace trident::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Config& base() {
  static const Config config = config_of({24, 2304, 24, 1, 1, 1, 32, 512, 16});
  return config;
}

TEST(Grid, CombinesEachValueWithEach) {
  const auto keys = parse_grid("tp=1,2  pp=1,2,4\n model.num_layers=8", base().parallel);
  ASSERT_EQ(keys.size(), 3U);
  EXPECT_EQ(keys[0].path, "parallel.tensor_model_parallel_size");
  EXPECT_EQ(keys[2].path, "model.num_layers");
  const auto points = grid_points(keys);
  ASSERT_EQ(points.size(), 6U);
  EXPECT_EQ(points[0].label, "tp=1 pp=1 model.num_layers=8");
  EXPECT_EQ(points[5].label, "tp=2 pp=4 model.num_layers=8");
  EXPECT_THAT(points[1].set,
              ElementsAre("parallel.tensor_model_parallel_size=1",
                          "parallel.pipeline_model_parallel_size=2", "model.num_layers=8"));
}

TEST(Grid, IsTheSameAsJson) {
  const auto words = grid_points(parse_grid("sp=true,false tp=1,2 schedule=1f1b", base().parallel));
  const auto json = grid_points(
      parse_grid(R"({"schedule": ["1f1b"], "sp": [true, false], "tp": [1, 2]})", base().parallel));
  ASSERT_EQ(words.size(), json.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    EXPECT_THAT(json[i].set, ::testing::UnorderedElementsAreArray(words[i].set));
  }
}

TEST(Grid, MistakesAreNamedWithTheirPlace) {
  const auto problem = [](const std::string& text) {
    try {
      parse_grid(text, base().parallel, 1000);
    } catch (const RequestError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(problem(""), HasSubstr("has no key"));
  EXPECT_THAT(problem("{}"), HasSubstr("has no key"));
  EXPECT_THAT(problem("[1]"), HasSubstr("needs KEY=VALUE"));
  EXPECT_THAT(problem("tp"), HasSubstr("grid: tp: needs KEY=VALUE"));
  EXPECT_THAT(problem("=1"), HasSubstr("needs KEY=VALUE"));
  EXPECT_THAT(problem("tp="), HasSubstr("has no value"));
  EXPECT_THAT(problem("tp=1,,2"), HasSubstr("has an empty value"));
  EXPECT_THAT(problem("tp=1,2,1"), HasSubstr("has the value 1 twice"));
  EXPECT_THAT(problem("tp=1 tp=2"), HasSubstr("is given twice"));
  EXPECT_THAT(problem("tp=1 parallel.tensor_model_parallel_size=2"), HasSubstr("under two names"));
  EXPECT_THAT(problem("scedule=1f1b"), HasSubstr("did you mean schedule"));
  EXPECT_THAT(problem(R"({"tp": 2})"), HasSubstr("grid: tp: needs a list"));
  EXPECT_THAT(problem(R"({"tp": [2)"), HasSubstr("grid"));
  std::string many = "x.a=0";
  for (int i = 1; i < 40; ++i) many += "," + std::to_string(i);
  EXPECT_THAT(problem(many + " x.b" + many.substr(3)), HasSubstr("more than 1000 points"));
}

}  // namespace
}  // namespace trident::testing

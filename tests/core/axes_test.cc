#include "core/axes.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace trident {
namespace {

std::vector<MeshAxis> axes() {
  return {{.name = "tp", .key = "tensor_model_parallel_size", .groups = {Group::tensor}},
          {.name = "dp", .key = "data_parallel_size"},
          {.name = "pp", .key = "pipeline_model_parallel_size", .groups = {Group::pipeline}},
          {.name = "own"}};
}

// An order may leave out axes of one rank, so it fits no layout in which these have more.
TEST(Axes, ACompletedOrderNamesEachAxisWithAKeyAndKeepsTheGivenOnesInFront) {
  constexpr std::string_view usual = "tp-cp-dp-pp";
  for (const auto& [given, completed] :
       std::vector<std::pair<std::string_view, std::string_view>>{{"tp", "tp-dp-pp"},
                                                                  {"pp-tp", "pp-tp-dp"},
                                                                  {"dp", "dp-tp-pp"},
                                                                  {"pp-dp-tp", "pp-dp-tp"},
                                                                  {"cp-dp", "cp-dp-tp-pp"},
                                                                  {"own", "own-tp-dp-pp"}}) {
    EXPECT_EQ(completed_order(axes(), given, usual), completed) << given;
  }
  std::vector<MeshAxis> wide = axes();
  for (MeshAxis& axis : wide) axis.size = 2;
  EXPECT_FALSE(axis_order(wide, "pp-tp"));
  EXPECT_EQ(axis_order(wide, completed_order(axes(), "pp-tp", usual)),
            (std::vector<std::size_t>{2, 0, 1, 3}));
  // A usual order of other axes completes nothing.
  EXPECT_EQ(completed_order(axes(), "pp-tp", "tp-replica"), "pp-tp");
}

TEST(Axes, ACompletedOrderNamesNoFoldedAxis) {
  std::vector<MeshAxis> all = axes();
  for (const MeshAxis& axis : expert_axes(all, 2, 1)) all.push_back(axis);
  EXPECT_EQ(completed_order(all, "pp", "tp-cp-dp-pp"), "pp-tp-dp");
}

}  // namespace
}  // namespace trident

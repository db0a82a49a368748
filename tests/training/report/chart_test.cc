#include "training/report/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

namespace trident {
namespace {

using testing::HasSubstr;
using testing::Not;

// The heights of the path of this class: the second of each pair of numbers.
std::vector<double> heights(const std::string& svg, const std::string& kind) {
  const std::size_t at = svg.find("<path class=\"" + kind + "\" d=\"");
  if (at == std::string::npos) return {};
  const std::size_t begin = svg.find("d=\"", at) + 3;
  std::string path = svg.substr(begin, svg.find('"', begin) - begin);
  for (char& c : path) {
    if (c == 'M' || c == 'L' || c == 'Z') c = ' ';
  }
  std::istringstream numbers(path);
  std::vector<double> result;
  for (double x = 0, y = 0; numbers >> x >> y;) result.push_back(y);
  return result;
}

Series flat(std::size_t count) {
  Series series{"loss", {}};
  for (std::size_t i = 0; i < count; ++i) series.points.emplace_back(static_cast<double>(i + 1), 2);
  return series;
}

TEST(LineChart, ASingleSpikeOfALongHistoryIsDrawnAtItsHeightAndSaidWhatTheShadeIs) {
  Series spiked = flat(5000);
  spiked.points[3210].second = 10;
  const std::string svg = line_chart({spiked}, "nats");
  // The same axis drawn from few points, one of them the extreme.
  const std::string truth = line_chart({{"loss", {{1, 2}, {5000, 10}}}}, "nats");
  const auto raw = heights(truth, "series");
  ASSERT_EQ(raw.size(), 2U);
  const auto range = heights(svg, "range");
  ASSERT_EQ(range.size(), 2000U) << "above and below of 1000 groups";
  EXPECT_NEAR(*std::min_element(range.begin(), range.end()), raw[1], 0.11);
  EXPECT_NEAR(*std::max_element(range.begin(), range.end()), raw[0], 0.11);
  const auto mean = heights(svg, "series");
  EXPECT_EQ(mean.size(), 1000U);
  const double fifth = raw[0] + (raw[1] - raw[0]) / 5;  // the group's mean
  EXPECT_NEAR(*std::min_element(mean.begin(), mean.end()), fifth, 0.11);
  EXPECT_THAT(svg, HasSubstr("line and shade: mean and range of 5 iterations"));
}

TEST(LineChart, ShortHistoriesAreDrawnPointByPoint) {
  const std::string svg = line_chart({flat(1000)}, "nats");
  EXPECT_EQ(heights(svg, "series").size(), 1000U);
  EXPECT_THAT(svg, Not(HasSubstr("class=\"range\"")));
  EXPECT_THAT(svg, Not(HasSubstr("mean and range")));
  EXPECT_THAT(svg, Not(HasSubstr("not finite")));
}

TEST(LineChart, WhatIsNotFiniteHasATickAndHidesNoNeighbour) {
  Series series = flat(5000);
  series.points[100].second = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = line_chart({series}, "nats");
  EXPECT_EQ(heights(svg, "series").size(), 1000U);
  EXPECT_THAT(svg, HasSubstr("<path class=\"not-finite\" d=\"M"));
  EXPECT_THAT(svg, HasSubstr("5 iterations; red ticks: not finite"));
}

}  // namespace
}  // namespace trident

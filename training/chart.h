// Small charts as SVG elements for report.html: lines over iterations, and bars.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trident {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>>
      points;  // x ascending; points that are not finite are gaps
};

// Lines on one pair of axes, up to six told apart by colour-blind readers (Okabe & Ito 2008) and by
// their dashes. At most about a thousand points of each are drawn, each the mean of its neighbours.
std::string line_chart(const std::vector<Series>& series, const std::string& unit);

// Pairs of bars, one pair for each name: measured, and what was predicted (negative: unknown).
struct Bars {
  std::string name;
  double measured = 0, predicted = -1;
};
std::string bar_chart(const std::vector<Bars>& bars, const std::string& unit);

}  // namespace trident

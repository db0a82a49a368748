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
// their dashes. Of more than a thousand points, so many neighbours become one, drawn as their mean
// and, in a shade, their range, so that a single spike shows; a note says how many. Points that are
// not finite have ticks on the axis.
std::string line_chart(const std::vector<Series>& series, const std::string& unit);

// Pairs of bars, one pair for each name: measured, and what was predicted (negative: unknown).
struct Bars {
  std::string name;
  double measured = 0, predicted = -1;
};
std::string bar_chart(const std::vector<Bars>& bars, const std::string& unit);

}  // namespace trident

#include "training/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/escape_xml.h"

namespace trident {
namespace {

constexpr double width = 560, height = 260, left = 70, right = 14, top = 26, bottom = 34;
constexpr std::array<const char*, 6> colours = {"#0072b2", "#d55e00", "#009e73",
                                                "#cc79a7", "#e69f00", "#56b4e9"};
constexpr std::array<const char*, 6> dashes = {"none", "6 3", "2 2", "8 3 2 3", "10 4", "4 4"};

// 1, 2 or 5 times a power of ten, at most `count` of which fill the span.
double step_of(double span, int count) {
  const double power = std::pow(10.0, std::floor(std::log10(span / count)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (span / (factor * power) <= count) return factor * power;
  }
  return 10 * power;
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Never empty.
  Range spread() const {
    if (!(high >= low)) return {0, 1};
    const double margin = high > low ? 0.04 * (high - low) : std::max(0.05 * std::abs(high), 1e-9);
    return {low - margin, high + margin};
  }
};

// Neighbouring points as one: the mean of those that are finite, and their range. `mean` is not
// finite where none is.
struct Bundle {
  double x = 0, mean = NAN;
  Range range;
};

constexpr std::size_t most_groups = 1000;

std::size_t group_size(const Series& series) {
  return std::max<std::size_t>(1, (series.points.size() + most_groups - 1) / most_groups);
}

std::vector<Bundle> grouped(const Series& series) {
  const std::size_t size = group_size(series);
  std::vector<Bundle> groups;
  for (std::size_t i = 0; i < series.points.size(); i += size) {
    const std::size_t end = std::min(i + size, series.points.size());
    Bundle group;
    double sum = 0, finite = 0;
    for (std::size_t k = i; k < end; ++k) {
      const auto& [x, y] = series.points[k];
      group.x += x / static_cast<double>(end - i);
      group.range.add(y);
      if (!std::isfinite(y)) continue;
      sum += y;
      ++finite;
    }
    if (finite > 0) group.mean = sum / finite;
    groups.push_back(group);
  }
  return groups;
}

std::string opened(double rows) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\">",
      width, rows);
}

// Where a chart's numbers lie in the picture.
struct Frame {
  Range xs, ys;

  double x_of(double x) const {
    return left + (x - xs.low) / (xs.high - xs.low) * (width - left - right);
  }
  double y_of(double y) const {
    return height - bottom - (y - ys.low) / (ys.high - ys.low) * (height - top - bottom);
  }
};

Frame frame_of(const std::vector<Series>& series) {
  Range xs, ys;
  for (const Series& one : series) {
    for (const auto& [x, y] : one.points) {
      xs.add(x);
      ys.add(y);
    }
  }
  return {xs.spread(), ys.spread()};
}

// The range of each group, so that a single extreme shows.
std::string band(const std::vector<Bundle>& groups, const char* colour, const Frame& frame) {
  std::string path;
  for (std::size_t i = 0; i < groups.size();) {
    std::string above, below;
    for (; i < groups.size() && std::isfinite(groups[i].mean); ++i) {
      above += fmt::format("{}{:.1f} {:.1f}", above.empty() ? "M" : "L", frame.x_of(groups[i].x),
                           frame.y_of(groups[i].range.high));
      below.insert(0, fmt::format("L{:.1f} {:.1f}", frame.x_of(groups[i].x),
                                  frame.y_of(groups[i].range.low)));
    }
    if (!above.empty()) path += above + below + "Z";
    while (i < groups.size() && !std::isfinite(groups[i].mean)) ++i;
  }
  return fmt::format(
      "<path class=\"range\" d=\"{0}\" fill=\"{1}\" fill-opacity=\"0.25\" stroke=\"{1}\" "
      "stroke-width=\"0.8\" stroke-opacity=\"0.55\"/>",
      path, colour);
}

// A tick on the axis for each point that is not finite.
std::string not_finite(const std::vector<Series>& series, const Frame& frame) {
  std::string path;
  for (const Series& one : series) {
    for (const auto& [x, y] : one.points) {
      if (!std::isfinite(y))
        path += fmt::format("M{:.1f} {}v7", frame.x_of(x), height - bottom - 7);
    }
  }
  if (path.empty()) return "";
  return fmt::format("<path class=\"not-finite\" d=\"{}\" stroke=\"#c00\" stroke-width=\"1.5\"/>",
                     path);
}

// What the marks mean that not every chart has.
std::string note(const std::vector<Series>& series) {
  std::string text;
  for (const Series& one : series) {
    if (group_size(one) == 1) continue;
    text = fmt::format("line and shade: mean and range of {} iterations", group_size(one));
    break;
  }
  const bool gaps = std::any_of(series.begin(), series.end(), [](const Series& one) {
    return std::any_of(one.points.begin(), one.points.end(),
                       [](const auto& point) { return !std::isfinite(point.second); });
  });
  if (gaps) text += fmt::format("{}red ticks: not finite", text.empty() ? "" : "; ");
  if (text.empty()) return "";
  return fmt::format("<text x=\"{}\" y=\"{}\">{}</text>", left, height - 4, text);
}

// The multiples of `step` that lie in a range.
std::vector<double> ticks(const Range& range, double step) {
  std::vector<double> at;
  double value = std::ceil(range.low / step) * step;
  while (value <= range.high) {
    at.push_back(value);
    value += step;
  }
  return at;
}

std::string axes(const Frame& frame, const std::string& unit) {
  std::string svg;
  const double dy = step_of(frame.ys.high - frame.ys.low, 6);
  for (const double y : ticks(frame.ys, dy)) {
    const double at = frame.y_of(y);
    svg += fmt::format(
        "<path d=\"M{} {:.1f}H{}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:.6g}</text>",
        left, at, width - right, left - 6, at + 4, std::abs(y) < 1e-9 * dy ? 0.0 : y);
  }
  const double dx = std::max(1.0, step_of(frame.xs.high - frame.xs.low, 8));
  for (const double x : ticks(frame.xs, dx)) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.6g}</text>",
                       frame.x_of(x), height - bottom + 15, std::abs(x) < 1e-9 * dx ? 0.0 : x);
  }
  return svg + fmt::format(
                   "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">iteration</text>"
                   "<text x=\"4\" y=\"12\">{}</text>",
                   width - right, height - 4, escape_xml(unit));
}

// Its line, with gaps where nothing is finite; with points where they are few.
std::string drawn(const Series& series, const char* colour, const char* dash, const Frame& frame) {
  std::string svg, path;
  const std::vector<Bundle> groups = grouped(series);
  if (group_size(series) > 1) svg += band(groups, colour, frame);
  bool down = false;
  for (const Bundle& group : groups) {
    if (std::isfinite(group.mean)) {
      path += fmt::format("{}{:.1f} {:.1f}", down ? "L" : "M", frame.x_of(group.x),
                          frame.y_of(group.mean));
    }
    down = std::isfinite(group.mean);
  }
  svg += fmt::format(
      "<path class=\"series\" d=\"{}\" fill=\"none\" stroke=\"{}\" "
      "stroke-width=\"1.6\" stroke-dasharray=\"{}\"/>",
      path, colour, dash);
  if (groups.size() > 40) return svg;
  for (const Bundle& group : groups) {
    if (!std::isfinite(group.mean)) continue;
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.2\" fill=\"{}\"/>",
                       frame.x_of(group.x), frame.y_of(group.mean), colour);
  }
  return svg;
}

}  // namespace

std::string line_chart(const std::vector<Series>& series, const std::string& unit) {
  const Frame frame = frame_of(series);
  std::string svg = opened(height) + axes(frame, unit);
  double legend = left + 60;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const char* const colour = colours[i % colours.size()];
    const char* const dash = dashes[i % dashes.size()];
    svg += drawn(series[i], colour, dash, frame);
    svg += fmt::format(
        "<path d=\"M{:.0f} 9h22\" stroke=\"{}\" stroke-width=\"2\" "
        "stroke-dasharray=\"{}\"/><text x=\"{:.0f}\" y=\"13\">{}</text>",
        legend, colour, dash, legend + 27, escape_xml(series[i].name));
    legend += 27 + 6.2 * static_cast<double>(series[i].name.size()) + 16;
  }
  return svg + not_finite(series, frame) + note(series) + "</svg>";
}

std::string bar_chart(const std::vector<Bars>& bars, const std::string& unit) {
  constexpr double row = 34, label = 120;
  double most = 0;
  for (const Bars& bar : bars) most = std::max({most, bar.measured, bar.predicted});
  const double scale = (width - label - 90) / (most > 0 ? most : 1);
  std::string svg = opened(24 + row * static_cast<double>(bars.size()));
  const bool known =
      std::any_of(bars.begin(), bars.end(), [](const Bars& b) { return b.predicted >= 0; });
  svg += fmt::format(
      "<rect x=\"{0}\" y=\"4\" width=\"12\" height=\"10\" fill=\"{1}\"/><text x=\"{2}\" "
      "y=\"13\">measured ({3})</text>",
      label, colours[0], label + 17, escape_xml(unit));
  if (known) {
    svg += fmt::format(
        "<rect x=\"{0}\" y=\"4\" width=\"12\" height=\"10\" fill=\"{1}\"/>"
        "<text x=\"{2}\" y=\"13\">predicted</text>",
        label + 210, colours[4], label + 227);
  }
  double y = 24;
  for (const Bars& bar : bars) {
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", label - 8, y + 17,
                       escape_xml(bar.name));
    const auto draw = [&](double value, const char* colour, double at) {
      svg += fmt::format(
          "<rect class=\"bar\" x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"12\" "
          "fill=\"{}\"/><text x=\"{:.1f}\" y=\"{}\">{:.4g}</text>",
          label, at, std::max(0.5, value * scale), colour, label + value * scale + 5, at + 10,
          value);
    };
    draw(bar.measured, colours[0], y);
    if (bar.predicted >= 0) draw(bar.predicted, colours[4], y + 13);
    y += row;
  }
  return svg + "</svg>";
}

}  // namespace trident

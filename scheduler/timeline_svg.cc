#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>

#include "base/escape_xml.h"
#include "base/units.h"
#include "scheduler/timeline.h"

namespace trident {

namespace {

constexpr double least_width = 1280.0, most_width = 10240.0;
constexpr double margin = 20.0;

struct Look {
  EventCategory category;
  const char* label;
  int red, green, blue;  // Okabe and Ito's; five of thin lanes are Tol's
};

// In the order of the legend.
constexpr std::array<Look, event_categories> looks = {{
    {EventCategory::forward, "forward", 0x56, 0xb4, 0xe9},
    {EventCategory::backward, "backward", 0xe6, 0x9f, 0x00},
    {EventCategory::backward_input, "input gradient", 0xf0, 0xe4, 0x42},
    {EventCategory::backward_weight, "weight gradient", 0x00, 0x9e, 0x73},
    {EventCategory::optimizer, "optimizer", 0xd5, 0x5e, 0x00},
    {EventCategory::transfer, "transfer", 0x70, 0x70, 0x70},
    {EventCategory::tensor_parallel, "tensor parallel", 0x00, 0x72, 0xb2},
    {EventCategory::gradient_reduction, "gradient reduction", 0xcc, 0x79, 0xa7},
    {EventCategory::weight_gather, "weight gather", 0x88, 0x22, 0x55},
    {EventCategory::all_reduce, "other all-reduce", 0x33, 0x22, 0x88},
    {EventCategory::token_dispatch, "token dispatch", 0x44, 0xaa, 0x99},
    {EventCategory::token_combine, "token combine", 0x99, 0x99, 0x33},
    {EventCategory::context_parallel, "context parallel", 0x66, 0x99, 0xcc},
}};

const Look& look(EventCategory category) {
  return *std::find_if(looks.begin(), looks.end(),
                       [&](const Look& row) { return row.category == category; });
}

// The category's colour mixed with white: 0 the colour itself, 1 white.
std::string colour(EventCategory category, double white) {
  const Look& base = look(category);
  const auto mix = [&](int part) {
    return static_cast<int>(std::lround(part + (255 - part) * white));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(base.red), mix(base.green), mix(base.blue));
}

// The distance between ticks, 1, 2 or 5 times a power of ten, that gives at most about ten ticks.
double tick_step(double span) {
  const double power = std::pow(10.0, std::floor(std::log10(span / 10.0)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (span / (factor * power) <= 10.0) return factor * power;
  }
  return 10.0 * power;
}

// Whether an event shows its micro-batch number, and the width that the number needs.
bool numbered(const TimelineEvent& event) {
  return event.microbatch >= 0 && !is_communication(event.category);
}
double number_width(const TimelineEvent& event) {
  return 6.6 * static_cast<double>(std::to_string(event.microbatch).size()) + 2.0;
}

// One timeline with its rows, stages and scale.
struct Panel {
  explicit Panel(const Timeline& drawn) : timeline(drawn) {
    size_t rows = timeline.rows.size();
    for (const auto& event : timeline.events) rows = std::max<size_t>(rows, event.rank + 1);
    stages.resize(rows);
    std::vector<size_t> of_row(rows);
    std::vector<double> scales;
    double first = INFINITY, last = -INFINITY;
    for (const auto& event : timeline.events) {
      first = std::min(first, event.start_us);
      last = std::max(last, event.start_us + event.duration_us);
      if (event.stage >= 0) stages[event.rank].insert(event.stage);
      used.insert(event.category);
      if (is_communication(event.category)) lanes.insert(event.category);
      if (!is_communication(event.category)) boxes = std::max(boxes, ++of_row[event.rank]);
      if (numbered(event) && event.duration_us > 0.0) {
        scales.push_back(number_width(event) / event.duration_us);
      }
    }
    // A few short events shall not stretch the page.
    const auto at = static_cast<std::ptrdiff_t>(0.9 * static_cast<double>(scales.size()));
    if (!scales.empty()) {
      std::nth_element(scales.begin(), scales.begin() + at, scales.end());
      scale = scales[static_cast<size_t>(at)];
    }
    if (last > first) {
      begin_us = first;
      end_us = last;
    }
  }
  std::string row_name(size_t row) const {
    return row < timeline.rows.size() ? timeline.rows[row] : fmt::format("rank {}", row);
  }

  const Timeline& timeline;
  std::vector<std::set<int>> stages;  // by row
  std::set<EventCategory> used;
  std::set<EventCategory> lanes;  // communication categories
  size_t boxes = 0;               // computes of the fullest row
  double scale = 0.0;             // points per microsecond at which 90% of the numbers fit
  double begin_us = 0.0, end_us = 0.0;
};

class Drawing {
 public:
  Drawing(const std::vector<Timeline>& panels, const std::string& notes) : notes_(notes) {
    for (const Timeline& timeline : panels) panels_.emplace_back(timeline);
    size_t longest = 0, rows = 1, boxes = 0;
    double wanted = 0.0;  // points per microsecond
    for (const Panel& panel : panels_) {
      rows = std::max(rows, panel.stages.size());
      boxes = std::max(boxes, panel.boxes);
      wanted = std::max(wanted, panel.scale);
      span_us_ = std::max(span_us_, panel.end_us - panel.begin_us);
      for (size_t row = 0; row < panel.stages.size(); ++row) {
        longest = std::max(longest, panel.row_name(row).size());
      }
    }
    if (span_us_ == 0.0) span_us_ = 1.0;
    row_height_ = std::clamp(680.0 / static_cast<double>(rows), 17.0, 46.0);
    left_ = margin + 12.0 + 7.0 * static_cast<double>(longest);
    const double numbers = 1.001 * wanted * span_us_ + left_ + margin;
    page_width_ =
        std::clamp(std::max(16.0 * static_cast<double>(boxes), numbers), least_width, most_width);
    scale_ = (page_width_ - margin - left_) / span_us_;
  }

  std::string svg() {
    for (Panel& panel : panels_) {
      panel_ = &panel;
      draw_title();
      if (&panel == &panels_.front()) draw_legend();
      top_ = y_;
      draw_rows();
      for (const auto& event : panel.timeline.events) draw_event(event);
      draw_axis();
      y_ += 14.0;
    }
    draw_notes();
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" height=\"{1:.0f}\" font-family=\"Helvetica, Arial, sans-serif\">\n{2}"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{3}</svg>\n",
        page_width_, y_ + 6.0, style(), body_);
  }

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
  }

  static std::string style() {
    std::string css = "<style>text{fill:#222} .m{font-size:11px;text-anchor:middle}";
    for (const Look& row : looks) {
      css += fmt::format(" .{}{{fill:{}}}", to_string(row.category), colour(row.category, 0.0));
    }
    return css + "</style>\n";
  }

  double x(double us) const { return left_ + (us - panel_->begin_us) * scale_; }

  void draw_title() {
    size_t from = 0;
    bool first = true;
    while (from < panel_->timeline.title.size()) {
      const size_t to =
          std::min(panel_->timeline.title.find('\n', from), panel_->timeline.title.size());
      y_ += first ? 20.0 : 18.0;
      put("<text x=\"{}\" y=\"{:.1f}\" font-size=\"{}\"{}>{}</text>\n", margin, y_, first ? 17 : 13,
          first ? " font-weight=\"bold\"" : "",
          escape_xml(panel_->timeline.title.substr(from, to - from)));
      from = to + 1;
      first = false;
    }
    y_ += first ? 0.0 : 10.0;
  }

  void draw_legend() {
    double at = margin;
    const auto entry = [&](const std::string& fill, const std::string& label) {
      put("<path d=\"M{:.1f} {:.1f}h14v14h-14z\" fill=\"{}\" stroke=\"#444\" stroke-width=\"0.5\"/>"
          "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\">{}</text>\n",
          at, y_ + 2, fill, at + 20, y_ + 13.5, label);
      at += 20 + 6.6 * static_cast<double>(label.size()) + 22;
    };
    for (const Look& row : looks) {
      const bool used = std::any_of(panels_.begin(), panels_.end(), [&](const Panel& panel) {
        return panel.used.contains(row.category);
      });
      if (used) entry(colour(row.category, 0.0), row.label);
    }
    entry("#eeeeee", "idle");
    const bool chunks = std::any_of(panels_.begin(), panels_.end(), [](const Panel& panel) {
      return std::any_of(panel.stages.begin(), panel.stages.end(),
                         [](const auto& held) { return held.size() > 1; });
    });
    if (chunks) {
      put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\">lighter: a later chunk of the rank"
          "</text>\n",
          at, y_ + 13.5);
    }
    y_ += 28.0;
  }

  double lane_top(int row) const { return top_ + row * row_height_ + 1.0; }
  double lane_height() const { return row_height_ - 2.0; }
  // Computes take the upper part of a row with communication, which is drawn below in thin lanes.
  double thin_height() const {
    const auto lanes = static_cast<double>(panel_->lanes.size());
    return lanes == 0.0 ? 0.0 : std::min(0.24, 0.5 / lanes) * lane_height();
  }
  double compute_height() const {
    return lane_height() - thin_height() * static_cast<double>(panel_->lanes.size());
  }

  void draw_rows() {
    const double size = std::min(12.0, row_height_ - 4.0);
    for (size_t row = 0; row < panel_->stages.size(); ++row) {
      const double y = lane_top(static_cast<int>(row));
      put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"end\">{}</text>"
          "<path d=\"M{:.1f} {:.1f}H{:.1f}v{:.1f}H{:.1f}z\" fill=\"#eeeeee\"/>\n",
          left_ - 8, y + lane_height() / 2 + 0.36 * size, size, escape_xml(panel_->row_name(row)),
          left_, y, page_width_ - margin, lane_height(), left_);
    }
  }

  // The lightness of an event: chunk c of n of its rank, by the order of the rank's stages.
  double lightness(const TimelineEvent& event) const {
    const auto& held = panel_->stages[event.rank];
    if (event.stage < 0 || held.size() < 2 || is_communication(event.category)) return 0.0;
    const auto chunk = std::distance(held.begin(), held.find(event.stage));
    return 0.62 * static_cast<double>(chunk) / static_cast<double>(held.size() - 1);
  }

  void draw_event(const TimelineEvent& event) {
    const bool communication = is_communication(event.category);
    const double left = x(event.start_us), width = std::max(event.duration_us * scale_, 0.3);
    const auto lane = std::distance(panel_->lanes.begin(), panel_->lanes.find(event.category));
    const double top =
        lane_top(event.rank) +
        (communication ? compute_height() + thin_height() * static_cast<double>(lane) : 0.0);
    const double height = communication ? thin_height() : compute_height();
    const double white = lightness(event);
    put("<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" "
        "height=\"{:.1f}\"{}{}><title>"
        "{}: {}, {}{:.3f} to {:.3f} {}</title></rect>\n",
        to_string(event.category), left, top, width, height,
        white > 0.0 ? fmt::format(" style=\"fill:{}\"", colour(event.category, white)) : "",
        // A border, unless it would hide the rectangle.
        width >= 3.0 && !communication ? " stroke=\"#444\" stroke-width=\"0.5\"" : "",
        escape_xml(panel_->row_name(event.rank)), escape_xml(event.name),
        event.bytes >= 0 ? bytes_text(event.bytes) + " sent, " : "",
        1e-3 * (event.start_us - panel_->begin_us),
        1e-3 * (event.start_us - panel_->begin_us + event.duration_us), panel_->timeline.unit);
    if (!numbered(event) || width < number_width(event) || height < 10.0) return;
    put("<text class=\"m\" x=\"{:.2f}\" y=\"{:.1f}\">{}</text>\n", left + width / 2,
        top + height / 2 + 4.0, event.microbatch);
  }

  void draw_axis() {
    const double bottom = top_ + row_height_ * static_cast<double>(panel_->stages.size());
    const double span_ms = 1e-3 * span_us_;
    // About a tick per hundred points.
    const double step = tick_step(span_ms * std::min(1.0, least_width / page_width_));
    for (int i = 0; i * step <= span_ms * (1 + 1e-9); ++i) {
      const double at = x(panel_->begin_us + 1e3 * i * step);
      put("<path d=\"M{0:.2f} {1:.1f}V{2:.1f}\" stroke=\"#888\" stroke-width=\"0.6\" "
          "stroke-opacity=\"0.45\"/><text class=\"m\" x=\"{0:.2f}\" y=\"{3:.1f}\">{4:.6g}</text>\n",
          at, top_, bottom + 5, bottom + 18, i * step);
    }
    y_ = bottom + 34;
    put("<text class=\"m\" x=\"{:.1f}\" y=\"{:.1f}\">time ({})</text>\n",
        (left_ + page_width_ - margin) / 2, y_, panel_->timeline.unit);
  }

  void draw_notes() {
    for (size_t from = 0; from < notes_.size();) {
      const size_t to = std::min(notes_.find('\n', from), notes_.size());
      y_ += 17.0;
      put("<text x=\"{}\" y=\"{:.1f}\" font-size=\"13\" font-family=\"monospace\" "
          "style=\"white-space:pre\">{}</text>\n",
          margin, y_, escape_xml(notes_.substr(from, to - from)));
      from = to + 1;
    }
  }

  std::vector<Panel> panels_;
  const std::string& notes_;
  const Panel* panel_ = nullptr;  // being drawn
  double page_width_ = least_width, span_us_ = 0.0;
  double row_height_ = 0.0, left_ = 0.0, scale_ = 0.0;
  double top_ = 0.0;  // of the rows
  double y_ = 16.0;   // bottom of the drawing so far
  std::string body_;
};

}  // namespace

std::string timeline_svg(const std::vector<Timeline>& panels, const std::string& notes) {
  return Drawing(panels, notes).svg();
}

std::string timeline_svg(const Timeline& timeline) {
  return timeline_svg(std::vector<Timeline>{timeline});
}

}  // namespace trident

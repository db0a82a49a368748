#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "scheduler/timeline.h"

namespace trident {

namespace {

char symbol(EventCategory category) {
  switch (category) {
    case EventCategory::forward:
      return 'F';
    case EventCategory::backward:
      return 'B';
    case EventCategory::backward_input:
      return 'I';
    case EventCategory::backward_weight:
      return 'W';
    case EventCategory::optimizer:
      return 'O';
    case EventCategory::transfer:
      return '~';
    case EventCategory::tensor_parallel:
      return ':';
    case EventCategory::gradient_reduction:
      return '+';
    case EventCategory::weight_gather:
      return '^';
    case EventCategory::all_reduce:
      return '*';
    case EventCategory::token_dispatch:
      return '>';
    case EventCategory::token_combine:
      return '<';
    case EventCategory::context_parallel:
      return '%';
  }
  return '?';
}

char filling(EventCategory category) {
  switch (category) {
    case EventCategory::forward:
      return '-';
    default:
      return is_communication(category) ? symbol(category) : '=';
  }
}

// "F12---": the letter and the micro-batch, filled up to `width`, two or more. It leaves out a
// number that doesn't fit: the number cut short would be another micro-batch's.
std::string box(const TimelineEvent& event, int width) {
  std::string text(width, filling(event.category));
  text[0] = symbol(event.category);
  if (event.microbatch < 0 || is_communication(event.category)) return text;
  const std::string number = std::to_string(event.microbatch);
  if (number.size() < static_cast<std::size_t>(width)) text.replace(1, number.size(), number);
  return text;
}

// The share of a column that each category fills.
using Coverage = std::array<double, event_categories>;

// The symbol of the category that fills most of a column, if the column is at least half full;
// computes go before communication. ' ' for an idle column.
char sample(const Coverage& column) {
  for (const bool communication : {false, true}) {
    double total = 0.0;
    int most = -1;
    for (int i = 0; i < event_categories; ++i) {
      if (is_communication(EventCategory(i)) != communication) continue;
      total += column[i];
      if (most < 0 || column[i] > column[most]) most = i;
    }
    if (total >= 0.5) return symbol(EventCategory(most));
  }
  return ' ';
}

// Adds the span [from, to), in columns.
void cover(std::vector<Coverage>& row, double from, double to, EventCategory category) {
  const int last = static_cast<int>(row.size()) - 1;
  for (int i = static_cast<int>(from); i <= std::min(last, static_cast<int>(to)); ++i) {
    row[i][static_cast<int>(category)] += std::min(to, i + 1.0) - std::max<double>(from, i);
  }
}

}  // namespace

std::string timeline_text(const Timeline& timeline, int columns) {
  size_t rows = timeline.rows.size(), label_width = 0;
  double begin = INFINITY, end = -INFINITY;
  for (const auto& event : timeline.events) {
    rows = std::max<size_t>(rows, event.rank + 1);
    begin = std::min(begin, event.start_us);
    end = std::max(end, event.start_us + event.duration_us);
  }
  std::vector<std::string> labels = timeline.rows;
  for (size_t row = labels.size(); row < rows; ++row) labels.push_back(fmt::format("rank {}", row));
  for (const auto& label : labels) label_width = std::max(label_width, label.size());
  const int width = std::max(std::max(columns, 40) - static_cast<int>(label_width) - 3, 20);
  const double scale = end - begin > 1e-300 ? width / (end - begin) : 0.0;

  std::vector<std::vector<Coverage>> coverage(rows, std::vector<Coverage>(width, Coverage{}));
  for (const auto& event : timeline.events) {
    const double from = (event.start_us - begin) * scale;
    cover(coverage[event.rank], from, from + event.duration_us * scale, event.category);
  }
  std::vector<std::string> lines(rows);
  for (size_t row = 0; row < rows; ++row) {
    for (const Coverage& column : coverage[row]) lines[row] += sample(column);
  }
  // Draws events of two columns or more with their names, computes over communication.
  for (const bool communication : {true, false}) {
    for (const auto& event : timeline.events) {
      if (is_communication(event.category) != communication) continue;
      const double first = (event.start_us - begin) * scale;
      const int from = static_cast<int>(std::lround(first));
      const int to = static_cast<int>(std::lround(first + event.duration_us * scale));
      if (to < from + 2) continue;
      lines[event.rank].replace(from, to - from, box(event, to - from));
    }
  }
  std::string text = timeline.title.empty() ? "" : timeline.title + "\n";
  for (size_t row = 0; row < rows; ++row) {
    text += fmt::format("{:>{}} |{}|\n", labels[row], label_width, lines[row]);
  }
  const std::string total =
      fmt::format("{:.4g} {}", end > begin ? 1e-3 * (end - begin) : 0.0, timeline.unit);
  text += fmt::format("{:>{}}  0{:>{}}\n", "", label_width, total, width - 1);
  text += fmt::format(
      "{:>{}}  F forward  B backward  I, W its input and weight gradient  O optimizer  ~ transfer",
      "", label_width);
  const auto used = [&](EventCategory category) {
    return std::any_of(timeline.events.begin(), timeline.events.end(),
                       [&](const TimelineEvent& event) { return event.category == category; });
  };
  for (const auto& [category, name] :
       {std::pair{EventCategory::tensor_parallel, "tensor parallel"},
        std::pair{EventCategory::gradient_reduction, "reduction"},
        std::pair{EventCategory::weight_gather, "weight gather"},
        std::pair{EventCategory::all_reduce, "all-reduce"},
        std::pair{EventCategory::token_dispatch, "token dispatch"},
        std::pair{EventCategory::token_combine, "token combine"},
        std::pair{EventCategory::context_parallel, "context parallel"}}) {
    if (used(category)) text += fmt::format("  {} {}", symbol(category), name);
  }
  text += "\n";
  return text;
}

}  // namespace trident

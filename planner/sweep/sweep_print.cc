// Prints a sweep's document as a table for a terminal or a spreadsheet.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/units.h"
#include "planner/sweep/sweep.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string cell(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return quoted(value.get<std::string>());
  return value.dump();
}

// Columns that every point may have, with their JSON pointers.
struct Column {
  const char *name, *pointer;
};
constexpr Column csv_columns[] = {{"point", "/point"},
                                  {"status", "/status"},
                                  {"reason", "/reason"},
                                  {"ranks", "/ranks"},
                                  {"processors", "/processors"},
                                  {"schedule", "/schedule"},
                                  {"chunks", "/chunks"},
                                  {"zero", "/zero"},
                                  {"micro_batch_size", "/micro_batch_size"},
                                  {"micro_batches", "/micro_batches"},
                                  {"global_batch_size", "/global_batch_size"},
                                  {"step_ms", "/step_ms"},
                                  {"median_ms", "/median_ms"},
                                  {"replayed_ms", "/replayed_ms"},
                                  {"fastest_ms", "/fastest_ms"},
                                  {"runs", "/runs"},
                                  {"noise", "/noise"},
                                  {"tokens", "/tokens"},
                                  {"predicted_ms", "/predicted_ms"},
                                  {"predicted_before_fit_ms", "/predicted_before_fit_ms"},
                                  {"compared", "/compared"},
                                  {"compared_ms", "/compared_ms"},
                                  {"tokens_per_second", "/tokens_per_second/all"},
                                  {"tokens_per_second_least", "/tokens_per_second/least"},
                                  {"tokens_per_second_most", "/tokens_per_second/most"},
                                  {"speed_up", "/speed_up"},
                                  {"efficiency", "/efficiency"},
                                  {"mfu", "/mfu"},
                                  {"bubble_ratio", "/bubble_ratio"},
                                  {"bubble_ratio_wall", "/bubble_ratio_wall"},
                                  {"bubble_predicted", "/bubble_predicted"},
                                  {"products_ms", "/parts_ms/products"},
                                  {"kernels_ms", "/parts_ms/kernels"},
                                  {"waiting_ms", "/parts_ms/waiting"},
                                  {"rest_ms", "/parts_ms/rest"},
                                  {"peak_memory", "/peak_memory"},
                                  {"planned_memory", "/planned_memory"},
                                  {"loss", "/loss"},
                                  {"loss_differs", "/loss_differs"}};

std::string value_at(const Json& point, const char* pointer) {
  const Json::json_pointer at(pointer);
  return point.contains(at) ? cell(point[at]) : std::string();
}

}  // namespace

std::string sweep_csv(const Json& sweep) {
  std::vector<std::string> axes, groups;
  for (const Json& point : sweep["points"]) {
    if (axes.empty()) {
      for (const auto& [axis, size] : point["axes"].items()) axes.push_back(axis);
    }
    if (!point.contains("bytes_sent")) continue;
    for (const auto& [group, bytes] : point["bytes_sent"].items()) {
      if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
    }
  }
  std::string text;
  const auto row = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) text += (i == 0 ? "" : ",") + cells[i];
    text += "\n";
  };
  std::vector<std::string> head;
  for (const Column& column : csv_columns) head.emplace_back(column.name);
  for (const std::string& axis : axes) head.push_back(axis);
  for (const std::string& group : groups) head.push_back("bytes_sent_" + group);
  row(head);
  for (const Json& point : sweep["points"]) {
    std::vector<std::string> cells;
    for (const Column& column : csv_columns) cells.push_back(value_at(point, column.pointer));
    for (const std::string& axis : axes)
      cells.push_back(value_at(point, ("/axes/" + axis).c_str()));
    for (const std::string& group : groups) {
      cells.push_back(value_at(point, ("/bytes_sent/" + group).c_str()));
    }
    row(cells);
  }
  for (const Json& point : sweep["invalid"]) {
    std::vector<std::string> cells(head.size());
    cells[0] = cell(point["point"]), cells[1] = "invalid", cells[2] = cell(point["reason"]);
    row(cells);
  }
  for (const Json& point : sweep.value("same", Json::array())) {
    std::vector<std::string> cells(head.size());
    cells[0] = cell(point["point"]), cells[1] = "same", cells[2] = cell(point["as"]);
    row(cells);
  }
  return text;
}

std::string sweep_text(const Json& sweep) {
  std::size_t width = 8;
  for (const Json& point : sweep["points"]) {
    width = std::max(width, point["point"].get<std::string>().size());
  }
  std::string text = fmt::format(
      "{} scaling, {} of {} a point; means over all of them\n", sweep["scaling"].get<std::string>(),
      counted(sweep["repeats"], "run"), counted(sweep["iterations"], "iteration"));
  if (sweep["base_line"].is_string()) {
    text += fmt::format("efficiency relative to {}\n", sweep["base_line"].get<std::string>());
  }
  double largest = 0;
  for (const Json& point : sweep["points"])
    largest = std::max(largest, point.value("peak_memory", 0.0));
  const ByteUnit memory = byte_unit(largest);
  const bool predicted = !sweep["predicted_for"].is_null();
  text +=
      fmt::format("{:<{}}  {:>5} {:>9} {:>11} {:>15} {:>6} {:>6} {:>7} {:>9} {:>10} {:>9}\n", "",
                  width, "ranks", "ms a step", predicted ? "predicted" : "", "tokens/s", "eff",
                  "MFU", "bubble", "predicted", fmt::format("{} a rank", memory.name), "loss");
  int differing = 0;
  for (const Json& point : sweep["points"]) {
    const std::string name = point["point"];
    if (!point.contains("step_ms")) {
      text += fmt::format("{:<{}}  {}{}{}\n", name, width, point["status"].get<std::string>(),
                          point["reason"] == "" ? "" : ": ", point["reason"].get<std::string>());
      continue;
    }
    const Json& speed = point["tokens_per_second"];
    const bool differs = point["loss_differs"];
    differing += differs ? 1 : 0;
    const double all = speed["all"];
    text += fmt::format(
        "{:<{}}  {:>5} {:>9.1f} {:>11} {:>9.0f} ±{:>3.0f}% {:>6} {:>6} {:>7} {:>9} "
        "{:>10.1f} {:>9}{}\n",
        name, width, point["ranks"].get<int>(), point["step_ms"].get<double>(),
        point.contains("predicted_ms") ? fmt::format("{:.1f}", point["predicted_ms"].get<double>())
                                       : "",
        all, 50 * (speed["most"].get<double>() - speed["least"].get<double>()) / all,
        point.contains("efficiency") ? fmt::format("{:.2f}", point["efficiency"].get<double>())
                                     : "",
        point["mfu"].is_number() ? percent_text(point["mfu"]) : "",
        percent_text(point["bubble_ratio"]), percent_text(point["bubble_predicted"]),
        memory.of(point["peak_memory"].get<double>()),
        point["loss"].is_number() ? fmt::format("{:.5f}", point["loss"].get<double>()) : "none",
        differs ? "  DIFFERS" : "");
    if (point["status"] != "ok") {
      text += fmt::format("{:<{}}  but a run {}: {}\n", "", width,
                          point["status"].get<std::string>(), point["reason"].get<std::string>());
    }
  }
  // Each reason has one line.
  std::map<std::string, std::vector<std::string>> invalid;
  for (const Json& point : sweep["invalid"]) invalid[point["reason"]].push_back(point["point"]);
  for (const auto& [reason, points] : invalid) {
    text += fmt::format("{:<{}}  invalid{}: {}\n", points.front(), width,
                        points.size() > 1 ? fmt::format(", and {} more", points.size() - 1) : "",
                        reason);
  }
  for (const Json& point : sweep.value("same", Json::array())) {
    text += fmt::format("{:<{}}  runs as {}\n", point["point"].get<std::string>(), width,
                        point["as"].get<std::string>());
  }
  if (differing > 0) {
    text += fmt::format("THE LOSS OF {} DIFFERS from that of other points with the same training\n",
                        differing == 1 ? "A POINT" : fmt::format("{} POINTS", differing));
  }
  return text;
}

}  // namespace trident

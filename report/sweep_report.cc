#include "report/sweep_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/escape_xml.h"
#include "base/files/json.h"
#include "base/units.h"
#include "report/page.h"
#include "report/run_report.h"

namespace trident {
namespace {

std::string head_of(const nlohmann::ordered_json& sweep) {
  const auto& model = sweep["model"];
  std::string text = fmt::format(
      "<p>{} scaling: {}, {} not valid; {} of {} each, after {} of warm-up: means over all "
      "of them</p>\n<p class=\"dim\">{}, {} layers, hidden size {}, {} tokens a sequence, "
      "{}</p>\n",
      sweep["scaling"].get<std::string>(),
      counted(static_cast<std::int64_t>(sweep["points"].size()), "point"), sweep["invalid"].size(),
      counted(sweep["repeats"], "run"), counted(sweep["iterations"], "iteration"),
      sweep["warm_up"].get<int>(), escape_xml(model["architecture"].get<std::string>()),
      model["num_layers"].dump(), model["hidden_size"].dump(), model["sequence_length"].dump(),
      escape_xml(model["dtype"].get<std::string>()));
  int differing = 0, failed = 0;
  for (const auto& point : sweep["points"]) {
    differing += point.value("loss_differs", false) ? 1 : 0;
    failed += point["status"] != "ok" && point["status"] != "not run" ? 1 : 0;
  }
  if (differing > 0) {
    text += fmt::format(
        "<p class=\"loud\">The loss of {} differs from that of others that "
        "train the same model on the same samples.</p>\n",
        counted(differing, "point"));
  }
  if (failed > 0)
    text += fmt::format("<p class=\"loud\">{} failed.</p>\n", counted(failed, "point"));
  if (sweep["base_line"].is_string()) {
    text += fmt::format("<p class=\"dim\">efficiency is relative to {}</p>\n",
                        escape_xml(sweep["base_line"].get<std::string>()));
  }
  if (!sweep["complete"].get<bool>()) {
    text += "<p class=\"loud\">The sweep was stopped before its end.</p>\n";
  }
  return text;
}

// Points whose config equals another point's after keys without effect are left out.
std::string same_of(const nlohmann::ordered_json& same) {
  std::string rows;
  for (const auto& point : same) {
    rows += fmt::format("<tr><td>{}</td><td class=\"text\">runs as {}</td></tr>",
                        escape_xml(point["point"].get<std::string>()),
                        escape_xml(point["as"].get<std::string>()));
  }
  return rows;
}

// The invalid points by reason, the most frequent reason first.
std::string invalid_of(const nlohmann::ordered_json& invalid) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const auto& point : invalid) by_reason[point["reason"]].push_back(point["point"]);
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons(by_reason.begin(),
                                                                        by_reason.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string rows;
  for (const auto& [reason, points] : reasons) {
    std::string names;
    for (const std::string& point : points) names += (names.empty() ? "" : "; ") + point;
    rows += fmt::format(
        "<tr><td>{}</td><td class=\"text\">{}<br><span class=\"dim\">{}</span>"
        "</td></tr>",
        counted(static_cast<std::int64_t>(points.size()), "point"), escape_xml(reason),
        escape_xml(names));
  }
  return rows;
}

std::string table_of(const std::string& rows) {
  return "<table class=\"reasons\">" + rows + "</table>\n";
}

std::string machine_of(const nlohmann::ordered_json& machine) {
  std::string rows;
  for (const auto& [name, value] : machine.items()) {
    rows += fmt::format("<tr><td>{}</td><td class=\"text\">{}</td></tr>", escape_xml(name),
                        escape_xml(value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return table_of(rows);
}

// [{what, point, list}], the lists as the runs have written them.
std::string timelines_of(const nlohmann::ordered_json& timelines) {
  std::vector<std::string> list;
  for (const auto& one : timelines) {
    list.push_back(fmt::format("{{\"what\":{},\"point\":{},\"list\":[{}]}}", json_text(one["what"]),
                               json_text(one["point"]),
                               fmt::join(timelines_in(one["run"].get<std::string>()), ",")));
  }
  return fmt::format("[{}]", fmt::join(list, ","));
}

}  // namespace

std::string sweep_report(const nlohmann::ordered_json& sweep) {
  std::string body = head_of(sweep);
  body +=
      "<div id=\"figures\" class=\"figures\"></div>\n<h2>Points</h2>\n"
      "<input id=\"filter\" class=\"screen\" type=\"search\" aria-label=\"Filter\" "
      "placeholder=\"Filter: words that a point's name has\">\n<div id=\"table\"></div>\n";
  if (const auto same = sweep.find("same"); same != sweep.end() && !same->empty()) {
    body += "<h2>The same layouts</h2>\n" + table_of(same_of(*same));
  }
  if (!sweep["invalid"].empty()) {
    body += "<h2>Not valid</h2>\n" + table_of(invalid_of(sweep["invalid"]));
  }
  body += "<div id=\"iterations\"></div>\n<h2>Machine and versions</h2>\n";
  body += machine_of(sweep["machine"]);
  nlohmann::ordered_json data = sweep;
  data.erase("timelines");
  return html_page("Trident sweep", sweep_page, body,
                   {{"sweep", json_text(data)}, {"timelines", timelines_of(sweep["timelines"])}});
}

}  // namespace trident

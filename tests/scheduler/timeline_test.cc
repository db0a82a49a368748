#include "scheduler/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "scheduler/lower.h"
#include "scheduler/schedules.h"

namespace trident {
namespace {

using testing::HasSubstr;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// The error in `xml`, or "" if it is well-formed (elements, quoted attributes, the five entities;
// no comments, declarations or CDATA, which we don't write).
std::string xml_problem(const std::string& xml) {
  std::vector<std::string> open;
  bool had_root = false;
  for (size_t at = 0; at < xml.size();) {
    if (xml[at] == '&') {
      const std::string entity = xml.substr(at, xml.find(';', at) - at);
      if (!std::set<std::string>{"&amp", "&lt", "&gt", "&quot", "&apos"}.contains(entity)) {
        return "bad entity " + entity.substr(0, 20);
      }
    }
    if (static_cast<unsigned char>(xml[at]) < 0x20 && !std::isspace(xml[at])) return "control";
    if (xml[at] != '<') {
      if (open.empty() && !std::isspace(xml[at])) return "text outside the root";
      ++at;
      continue;
    }
    const bool closing = xml[at + 1] == '/';
    size_t end = at + 1 + closing;
    while (std::isalnum(xml[end])) ++end;
    const std::string name = xml.substr(at + 1 + closing, end - at - 1 - closing);
    std::set<std::string> attributes;
    while (xml[end] == ' ') {
      const size_t equals = xml.find("=\"", end), close = xml.find('"', equals + 2);
      if (equals == std::string::npos || close == std::string::npos) return "attribute of " + name;
      if (!attributes.insert(xml.substr(end + 1, equals - end - 1)).second) return "twice";
      if (xml.substr(equals, close - equals).find('<') != std::string::npos) return "< in value";
      end = close + 1;
    }
    const bool empty = xml[end] == '/';
    if (xml[end + empty] != '>') return "end of tag " + name;
    if (closing) {
      if (open.empty() || open.back() != name) return "closes " + name;
      open.pop_back();
    } else if (!empty) {
      if (open.empty() && had_root) return "second root";
      had_root = true;
      open.push_back(name);
    }
    at = end + empty + 1;
  }
  return open.empty() && had_root ? "" : "not closed";
}

Timeline simulated(const ScheduleRequest& request) {
  const Schedule schedule = make_schedule(request);
  const Simulation simulation = simulate(schedule, stage_times(schedule, {}));
  return {"bubble 27.3% measured\n27.3% \"predicted\" <&>\x01",
          {},
          timeline_events(schedule, simulation, 1000.0)};
}

TEST(Timeline, SvgIsWellFormedAndHasARectangleForEachAction) {
  for (const int p : {1, 2, 8, 64}) {
    const Timeline timeline = simulated({"interleaved_1f1b", p, p, 2, 0});
    ASSERT_EQ(timeline.events.size(), 4u * p * p);
    const std::string svg = timeline_svg(timeline);
    EXPECT_EQ(xml_problem(svg), "");
    EXPECT_EQ(count(svg, "<rect class=\"forward\""), 2u * p * p);
    EXPECT_EQ(count(svg, "<rect class=\"backward\""), 2u * p * p);
    EXPECT_THAT(svg, HasSubstr("bubble 27.3% measured"));
    EXPECT_THAT(svg, HasSubstr("27.3% &quot;predicted&quot; &lt;&amp;&gt; "));
    EXPECT_THAT(svg, HasSubstr("time (ms)"));
    EXPECT_EQ(svg.find("http", svg.find("http") + 1), std::string::npos) << "only the namespace";
  }
}

TEST(Timeline, SvgDrawsAnEmptyTimeline) {
  EXPECT_EQ(xml_problem(timeline_svg(Timeline{})), "");
  EXPECT_EQ(xml_problem(timeline_svg(Timeline{"", {"a", "b"}, {}})), "");
  EXPECT_EQ(
      xml_problem(timeline_svg(Timeline{"", {}, {{0, "F", EventCategory::forward, 5, 0, 0, 0}}})),
      "");
}

TEST(Timeline, RectanglesLieAtTheirTimes) {
  Timeline timeline;
  timeline.events = {{0, "0F0", EventCategory::forward, 100, 400, 0, 0},
                     {0, "bucket 0", EventCategory::all_reduce, 300, 600, -1, -1}};
  const std::string svg = timeline_svg(timeline);
  const auto number = [&](const std::string& box, const char* attribute) {
    const size_t at = svg.find(std::string(" ") + attribute + "=\"", svg.find(box));
    return std::stod(svg.substr(at + std::string(attribute).size() + 3));
  };
  const std::string forward = "<rect class=\"forward\"", reduce = "<rect class=\"all_reduce\"";
  EXPECT_NEAR(number(reduce, "width") / number(forward, "width"), 1.5, 1e-3);
  EXPECT_NEAR((number(reduce, "x") - number(forward, "x")) / number(forward, "width"), 0.5, 1e-3);
  EXPECT_GE(number(reduce, "y"), number(forward, "y") + number(forward, "height") - 0.11);
}

TEST(Timeline, ChromeTraceHoldsEveryEventAndNamesProcessesAndThreads) {
  Timeline timeline = simulated({"1f1b", 2, 3, 0, 0});
  timeline.rows = {"dp 0 pp 0", "dp 0 pp 1"};
  timeline.events.push_back({1, "bucket \xff", EventCategory::all_reduce, 1.5, 2.25, -1, -1});
  const auto trace = nlohmann::json::parse(chrome_trace(timeline));
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  size_t events = 0;
  std::set<std::string> processes, threads;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      if (event["name"] == "process_name") processes.insert(event["args"]["name"]);
      if (event["name"] == "thread_name") threads.insert(event["args"]["name"]);
      continue;
    }
    if (event["ph"] != "X") continue;
    const TimelineEvent& drawn = timeline.events[events++];
    EXPECT_EQ(event["cat"], to_string(drawn.category));
    EXPECT_EQ(event["ts"], drawn.start_us);
    EXPECT_EQ(event["dur"], drawn.duration_us);
    EXPECT_EQ(event["pid"], drawn.rank);
    EXPECT_EQ(event["tid"], drawn.category == EventCategory::all_reduce ? 1 : 0);
  }
  EXPECT_EQ(events, timeline.events.size());
  EXPECT_EQ(processes, (std::set<std::string>{"dp 0 pp 0", "dp 0 pp 1"}));
  EXPECT_EQ(threads, (std::set<std::string>{"compute", "all_reduce"}));
}

TEST(Timeline, CommunicationHasALaneForEachCategoryAndNamesItsGroupRanksAndBytes) {
  Timeline timeline;
  timeline.events = {{0, "0F0", EventCategory::forward, 0, 900, 0, 0},
                     {.rank = 0,
                      .name = "all_reduce of tensor ranks 0,1",
                      .category = EventCategory::tensor_parallel,
                      .start_us = 100,
                      .duration_us = 200,
                      .group = "tensor",
                      .ranks = {0, 1},
                      .bytes = 4096},
                     {.rank = 0,
                      .name = "reduce_scatter of data ranks 0,2",
                      .category = EventCategory::gradient_reduction,
                      .start_us = 200,
                      .duration_us = 700,
                      .group = "data",
                      .ranks = {0, 2},
                      .bytes = 128}};
  const auto trace = nlohmann::json::parse(chrome_trace(timeline));
  std::map<std::string, nlohmann::json> by_category;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") by_category[event["cat"]] = event;
  }
  EXPECT_EQ(by_category["tensor_parallel"]["args"],
            nlohmann::json({{"group", "tensor"}, {"ranks", {0, 1}}, {"bytes", 4096}}));
  EXPECT_NE(by_category["tensor_parallel"]["tid"], by_category["gradient_reduction"]["tid"]);
  EXPECT_EQ(by_category["forward"]["tid"], 0);

  const std::string svg = timeline_svg(timeline);
  EXPECT_EQ(xml_problem(svg), "");
  const auto span = [&](const std::string& kind) {
    const size_t box = svg.find("<rect class=\"" + kind + "\"");
    const auto number = [&](const char* name) {
      return std::stod(svg.substr(svg.find(name, box) + std::string(name).size()));
    };
    return std::pair{number(" y=\""), number(" y=\"") + number(" height=\"")};
  };
  const auto compute = span("forward"), tensor = span("tensor_parallel"),
             data = span("gradient_reduction");
  EXPECT_GE(tensor.first, compute.second - 0.11);
  EXPECT_GE(data.first, tensor.second - 0.11);
  EXPECT_GE(compute.second - compute.first, 10) << "numbers fit";
  EXPECT_THAT(svg, HasSubstr("all_reduce of tensor ranks 0,1, 4.00 KiB sent, "));
  EXPECT_THAT(svg, HasSubstr(">tensor parallel</text>"));
}

// The arrows from each event named `from` to the one named `to`, by the rows of the events.
std::set<std::string> arrows_of(const Timeline& timeline) {
  const auto trace = nlohmann::json::parse(chrome_trace(timeline));
  const auto name_at = [&](const nlohmann::json& flow) {
    for (const auto& event : trace["traceEvents"]) {
      const double begin = event.value("ts", -1.0), end = begin + event.value("dur", -1.0);
      if (event["ph"] == "X" && event["pid"] == flow["pid"] && event["tid"] == flow["tid"] &&
          begin <= flow["ts"] && flow["ts"] <= end) {
        if (flow["ph"] == "s" || begin == flow["ts"]) return event["name"].get<std::string>();
      }
    }
    return std::string("nothing");
  };
  std::map<int, std::string> begun;
  std::set<std::string> arrows;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "s") begun[event["id"]] = name_at(event);
    if (event["ph"] == "f") arrows.insert(begun.at(event["id"]) + " -> " + name_at(event));
  }
  return arrows;
}

TEST(Timeline, ArrowsOfAChromeTraceLeadToTheReceivingAction) {
  EXPECT_EQ(arrows_of(simulated({"1f1b", 2, 2, 0, 0})),
            (std::set<std::string>{"0F0 -> 1F0", "0F1 -> 1F1", "1B0 -> 0B0", "1B1 -> 0B1"}));
  // With two pipelines, messages name the other rank.
  Timeline two;
  for (const int row : {0, 2}) {
    two.events.push_back({row, "0F3", EventCategory::forward, 0, 10, 0, 3});
    two.events.push_back({.rank = row,
                          .name = "send of 0F3 to rank " + std::to_string(row + 1),
                          .category = EventCategory::transfer,
                          .start_us = 10,
                          .duration_us = 15,  // ends after it has arrived
                          .stage = 0,
                          .microbatch = 3,
                          .group = "pipeline",
                          .ranks = {row + 1},
                          .memory = 4096});
    two.events.push_back({row + 1, "1F3", EventCategory::forward, 20.0 + row, 5, 1, 3});
  }
  EXPECT_EQ(arrows_of(two), (std::set<std::string>{"send of 0F3 to rank 1 -> 1F3",
                                                   "send of 0F3 to rank 3 -> 1F3"}));
  EXPECT_THAT(chrome_trace(two), HasSubstr("\"ph\":\"C\",\"ts\":25,\"pid\":0,\"args\":"
                                           "{\"bytes\":4096}"));
  EXPECT_THAT(chrome_trace(two), HasSubstr("\"name\":\"transfer, pipeline\""));
}

TEST(Timeline, TextShowsTheOrder) {
  Timeline timeline = simulated({"gpipe", 2, 2, 0, 0});
  timeline.title = "gpipe";
  // 9 time units take 45 columns: 5 columns a unit.
  EXPECT_THAT(timeline_text(timeline, 45 + 9),
              HasSubstr("gpipe\n"
                        "rank 0 |F0---F1---               B0========B1========|\n"
                        "rank 1 |     F0---F1---B0========B1========          |\n"));
}

TEST(Timeline, TextShowsNoPartOfANumberThatDoesNotFit) {
  // At 2 columns a unit, "F0" would be read as another micro-batch.
  const std::string text = timeline_text(simulated({"1f1b", 1, 13, 0, 0}), 3 * 2 * 13 + 9);
  EXPECT_THAT(text, HasSubstr("F8B8==F9B9==F-B10=F-B11="));
}

TEST(Timeline, TextOfMoreActionsThanColumnsStaysBusyWhereRanksAre) {
  const Timeline timeline = simulated({"1f1b", 1, 1000, 0, 0});
  const std::string text = timeline_text(timeline, 80);
  const size_t from = text.find('|');
  EXPECT_EQ(text.substr(from, text.find('|', from + 1) - from).find(' '), std::string::npos);
}

TEST(Timeline, EventsOfATraceAreComputesWaitsAndSends) {
  const auto list = lower(one_f_one_b(2, 1))[0];  // F, send; post, wait, B
  ExecutionTrace trace;
  int64_t now = 5000;
  for (const LoweredAction& action : list) {
    trace.events.push_back({action, {now, 0}, {now + 2000, 0}});
    now += 2000;
  }
  const auto events = timeline_events(trace, 3, 1000);
  std::vector<std::string> names;
  for (const auto& event : events) {
    names.push_back(event.name);
    EXPECT_EQ(event.rank, 3);
    EXPECT_DOUBLE_EQ(event.duration_us, 2.0);
  }
  EXPECT_THAT(names, testing::ElementsAre("0F0", "send of 0F0 to rank 1",
                                          "wait receive for 0B0 from rank 1", "0B0"));
  EXPECT_EQ(events[1].category, EventCategory::transfer);
  // The pipeline's rank 1 has another rank in the world.
  const auto placed = timeline_events(trace, 3, 1000, {3, 7});
  EXPECT_EQ(placed[1].name, "send of 0F0 to rank 7");
  EXPECT_EQ(placed[1].ranks, std::vector{7});
  EXPECT_EQ(events[3].category, EventCategory::backward);
}

}  // namespace
}  // namespace trident

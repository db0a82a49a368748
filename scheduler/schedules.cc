#include "scheduler/schedules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/nearest.h"
#include "scheduler/automatic.h"
#include "scheduler/interleaved.h"

namespace trident {

namespace {

constexpr int most_forwards = 1 << 24;

struct KindRow {
  const char* name;
  int default_chunks;
  bool any_chunks;  // whether other numbers can be asked for
  bool grouped;     // whether group_size can be asked for
  Schedule (*make)(const ScheduleRequest&);
};

constexpr std::array<KindRow, 13> kinds = {{
    {"naive", 1, false, false,
     [](const ScheduleRequest& r) { return naive(r.stages, r.microbatches); }},
    {"gpipe", 1, false, false,
     [](const ScheduleRequest& r) { return gpipe(r.stages, r.microbatches); }},
    {"1f1b", 1, false, false,
     [](const ScheduleRequest& r) { return one_f_one_b(r.stages, r.microbatches); }},
    {"interleaved_1f1b", 2, true, true,
     [](const ScheduleRequest& r) {
       return interleaved_one_f_one_b(r.stages, r.microbatches, r.chunks, r.group_size);
     }},
    {"looped_bfs", 2, true, false,
     [](const ScheduleRequest& r) { return looped_bfs(r.stages, r.microbatches, r.chunks); }},
    {"zb_h1", 1, false, false,
     [](const ScheduleRequest& r) { return zb_h1(r.stages, r.microbatches); }},
    {"zb_h2", 1, false, false,
     [](const ScheduleRequest& r) { return zb_h2(r.stages, r.microbatches); }},
    {"interleaved_zero_bubble", 2, true, true,
     [](const ScheduleRequest& r) {
       return interleaved_zero_bubble(r.stages, r.microbatches, r.chunks, r.group_size);
     }},
    {"zbv", 2, false, false,
     [](const ScheduleRequest& r) { return zbv(r.stages, r.microbatches); }},
    {"dualpipev", 2, false, false,
     [](const ScheduleRequest& r) { return dualpipev(r.stages, r.microbatches); }},
    {"pipedream", 1, false, false,
     [](const ScheduleRequest& r) { return pipedream(r.stages, r.microbatches); }},
    {"pipedream_2bw", 1, false, false,
     [](const ScheduleRequest& r) { return pipedream_2bw(r.stages, r.microbatches); }},
    {"auto", 0, true, false, automatic},  // 0 chunks: one, or two, whichever is better
}};

const KindRow& find_kind(const std::string& name) {
  for (const KindRow& row : kinds) {
    if (name == row.name) return row;
  }
  const auto available = fmt::format("{}", fmt::join(schedule_kinds(), ", "));
  throw RequestError(fmt::format("\"{}\" is no known schedule; did you mean \"{}\"? Available: {}",
                                 name, nearest(name, schedule_kinds()), available));
}

}  // namespace

ScheduleRequest without_foreign_sizes(ScheduleRequest request) {
  const KindRow& kind = find_kind(request.kind);
  if (!kind.any_chunks) request.chunks = 0;
  if (!kind.grouped) request.group_size = 0;
  return request;
}

std::vector<std::string> schedule_kinds() {
  std::vector<std::string> names;
  for (const KindRow& row : kinds) names.push_back(row.name);
  return names;
}

ScheduleRequest complete(const ScheduleRequest& request) {
  const KindRow& kind = find_kind(request.kind);
  if (request.stages < 1 || request.microbatches < 1 || request.chunks < 0 ||
      request.group_size < 0) {
    throw RequestError(fmt::format(
        "{} got {} stages, {} micro-batches, {} chunks, group size {}: stages and micro-batches "
        "have to be at least 1, chunks and group size at least 1 or 0 for the default",
        kind.name, request.stages, request.microbatches, request.chunks, request.group_size));
  }
  if (request.chunks > 0 && request.chunks != kind.default_chunks && !kind.any_chunks) {
    throw RequestError(fmt::format(
        "{} runs {} chunk{} per rank, got {}; use {}, or interleaved_1f1b for {} chunks", kind.name,
        kind.default_chunks, kind.default_chunks == 1 ? "" : "s", request.chunks,
        kind.default_chunks, request.chunks));
  }
  if (request.group_size > 0 && !kind.grouped) {
    throw RequestError(fmt::format(
        "{} has no micro-batch groups, got group size {}; leave it out, or use interleaved_1f1b",
        kind.name, request.group_size));
  }
  ScheduleRequest filled = request;
  if (filled.chunks == 0) filled.chunks = kind.default_chunks;
  const double forwards = static_cast<double>(filled.stages) * std::max(1, filled.chunks) *
                          static_cast<double>(filled.microbatches);
  if (forwards > most_forwards) {
    throw RequestError(fmt::format(
        "{} got {} stages × {} chunks × {} micro-batches = {:.0f} forwards; at most {} are "
        "accepted, for which lists take some gigabytes",
        kind.name, filled.stages, std::max(1, filled.chunks), filled.microbatches, forwards,
        most_forwards));
  }
  if (kind.grouped) {
    filled.group_size =
        interleaved_group_size(kind.name, filled.stages, filled.microbatches, filled.group_size);
  }
  return filled;
}

void need_room(const Schedule& schedule, double max_in_flight) {
  if (max_in_flight <= 0) return;
  const std::vector<double> peaks = peak_in_flight(schedule);
  const auto most = std::max_element(peaks.begin(), peaks.end());
  if (*most <= max_in_flight) return;
  throw RequestError(fmt::format(
      "{} holds {:g} micro-batches in flight on rank {}, more than the {:g} allowed; allow {:g}, "
      "or use auto",
      schedule.kind, *most, most - peaks.begin(), max_in_flight, *most));
}

Schedule make_schedule(const ScheduleRequest& request) {
  Schedule schedule = find_kind(request.kind).make(complete(request));
  need_room(schedule, request.max_in_flight);
  return schedule;
}

}  // namespace trident

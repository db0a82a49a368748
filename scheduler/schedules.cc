#include "scheduler/schedules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"
#include "base/units.h"
#include "scheduler/analytic.h"
#include "scheduler/automatic.h"
#include "scheduler/interleaved.h"
#include "scheduler/warm_up.h"

namespace trident {

namespace {

constexpr int most_forwards = 1 << 24;

int default_chunks(const ScheduleKind& kind) {
  switch (kind.chunks) {
    case ChunkRule::one:
      return 1;
    case ChunkRule::two:
    case ChunkRule::several:
      return 2;
    case ChunkRule::any:
      return 0;
  }
  return 0;
}

// Whether a request may choose the number of chunks.
bool any_chunks(const ScheduleKind& kind) {
  return kind.chunks == ChunkRule::several || kind.chunks == ChunkRule::any;
}

using Request = ScheduleRequest;

// Adapt a function of the sizes p and m, or also v and g.
template <Schedule (*make)(int, int)>
Schedule of_sizes(const Request& r) {
  return make(r.stages, r.microbatches);
}
template <Schedule (*make)(int, int, int, int)>
Schedule of_groups(const Request& r) {
  return make(r.stages, r.microbatches, r.chunks, r.group_size);
}

}  // namespace

const std::vector<ScheduleKind>& schedule_registry() {
  static const std::vector<ScheduleKind> table{
      {{.name = "naive"}, of_sizes<naive>, naive_bubble},
      {{.name = "gpipe"}, of_sizes<gpipe>, flushed_bubble},
      {{.name = "1f1b", .is_default = true}, of_sizes<one_f_one_b>, flushed_bubble},
      {{.name = "interleaved_1f1b",
        .chunks = ChunkRule::several,
        .is_default = true,
        .grouped = true,
        .ungrouped = "1f1b"},
       of_groups<interleaved_one_f_one_b>,
       interleaved_bubble},
      {{.name = "looped_bfs", .chunks = ChunkRule::several},
       [](const Request& r) { return looped_bfs(r.stages, r.microbatches, r.chunks); },
       looped_bubble},
      {{.name = "zb_h1"}, of_sizes<zb_h1>, zb_h1_bubble},
      {{.name = "zb_h2"}, of_sizes<zb_h2>, zb_h2_bubble},
      {{.name = "interleaved_zero_bubble",
        .chunks = ChunkRule::several,
        .grouped = true,
        .ungrouped = "zb_h1"},
       of_groups<interleaved_zero_bubble>},
      {{.name = "zbv", .chunks = ChunkRule::two}, of_sizes<zbv>, zbv_bubble},
      {{.name = "dualpipev", .chunks = ChunkRule::two}, of_sizes<dualpipev>},
      {{.name = "pipedream", .flushed = false, .each_microbatch = true},
       of_sizes<pipedream>,
       asynchronous_bubble},
      {{.name = "pipedream_2bw", .flushed = false}, of_sizes<pipedream_2bw>, asynchronous_bubble},
      {{.name = "auto", .chunks = ChunkRule::any, .searched = true}, automatic}};
  return table;
}

const std::vector<ScheduleKind>& registry_of(const ScheduleRequest& request) {
  return request.registry != nullptr ? *request.registry : schedule_registry();
}

const ScheduleKind& kind_of(const ScheduleRequest& request) {
  const std::vector<ScheduleKind>& registry = registry_of(request);
  if (const ScheduleKind* kind = find_row(registry, request.kind)) return *kind;
  const std::vector<std::string> names = names_of(registry);
  throw RequestError(fmt::format("\"{}\" is no known schedule; did you mean \"{}\"? Available: {}",
                                 request.kind, nearest(request.kind, names),
                                 fmt::join(names, ", ")));
}

ScheduleRequest without_unsupported_sizes(ScheduleRequest request) {
  const ScheduleKind& kind = kind_of(request);
  if (!any_chunks(kind)) request.chunks = 0;
  if (!kind.grouped) request.group_size = 0;
  return request;
}

ScheduleRequest complete(const ScheduleRequest& request) {
  const ScheduleKind& kind = kind_of(request);
  const int usual = default_chunks(kind);
  if (request.stages < 1 || request.microbatches < 1 || request.chunks < 0 ||
      request.group_size < 0) {
    throw RequestError(fmt::format(
        "{} got {}, {}, {}, group size {}: stages and micro-batches "
        "have to be at least 1, chunks and group size at least 1 or 0 for the default",
        kind.name, counted(request.stages, "stage"), counted(request.microbatches, "micro-batch"),
        counted(request.chunks, "chunk"), request.group_size));
  }
  if (request.chunks > 0 && request.chunks != usual && !any_chunks(kind)) {
    throw RequestError(
        fmt::format("{} runs {} chunk{} per rank, got {}; use {}, or {} for {} chunks", kind.name,
                    usual, usual == 1 ? "" : "s", request.chunks, usual,
                    default_schedule(registry_of(request), true), request.chunks));
  }
  if (request.group_size > 0 && !kind.grouped) {
    throw RequestError(
        fmt::format("{} has no micro-batch groups, got group size {}; leave it out, or use {}",
                    kind.name, request.group_size, default_schedule(registry_of(request), true)));
  }
  const MemoryLimit& memory = request.memory;
  if (memory.most.size() > 1 && std::ssize(memory.most) != request.stages) {
    throw RequestError(fmt::format("{} limits for {} ranks: give one for all or one for each",
                                   memory.most.size(), request.stages));
  }
  for (double most : memory.most) {
    if (most > 0.0 && most <= std::numeric_limits<double>::max()) continue;
    throw RequestError(
        fmt::format("a limit of {} micro-batches in flight has to be a positive number", most));
  }
  if (!(memory.kept_for_weights >= 0.0 && memory.kept_for_weights <= 1.0)) {
    throw RequestError(fmt::format(
        "the share of a forward's memory that weight gradients need is {}; it has to be "
        "from 0 to 1",
        memory.kept_for_weights));
  }
  ScheduleRequest filled = request;
  if (filled.chunks == 0) filled.chunks = usual;
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

void check_memory(const Schedule& schedule, const MemoryLimit& memory) {
  if (memory.unlimited()) return;
  const std::vector<double> peaks = peak_in_flight(schedule, memory.kept_for_weights);
  for (int rank = 0; rank < schedule.stages; ++rank) {
    if (peaks[rank] <= memory.of(rank) + 1e-9) continue;
    throw RequestError(fmt::format(
        "{} holds {:g} micro-batches in flight on rank {}, more than the {:g} allowed; allow "
        "{:g}, or use auto",
        schedule.kind, peaks[rank], rank, memory.of(rank), peaks[rank]));
  }
}

double value_of(Objective objective, const Schedule& schedule, const Bubble& bubble) {
  if (objective == Objective::step) {
    objective = overlaps_next_iteration(schedule) ? Objective::span : Objective::makespan;
  }
  return objective == Objective::span ? bubble.longest_span : bubble.makespan;
}

Schedule make_schedule(const ScheduleRequest& request) {
  const ScheduleKind& kind = kind_of(request);
  Schedule schedule = kind.make(complete(request));
  schedule.kind = kind.name;
  if (schedule.asynchronous() == kind.flushed ||
      (schedule.updates == Updates::each_microbatch) != kind.each_microbatch) {
    throw Error(
        fmt::format("schedule {}: its list updates weights at other times than its registry row "
                    "declares",
                    kind.name));
  }
  check_memory(schedule, request.memory);
  return schedule;
}

}  // namespace trident

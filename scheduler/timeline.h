// Draws what ran (or would run): SVG, Chrome trace, plain text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/execute.h"
#include "scheduler/simulate.h"

namespace trident {

enum class EventCategory : uint8_t {
  forward,
  backward,
  backward_input,
  backward_weight,
  optimizer,
  transfer,            // between pipeline stages
  tensor_parallel,     // collectives inside layers
  gradient_reduction,  // over data-parallel ranks, bucket by bucket
  weight_gather,       // of ZeRO, over data-parallel ranks
  all_reduce,          // others: loss and norm, tied embeddings
};
inline constexpr int event_categories = 10;

// "forward", ..., "all_reduce": the `cat` of the Chrome trace.
const char* to_string(EventCategory category);

// May run beside compute and beside other communication: each such category has a lane of its own
// in each drawing. 0 for computes, from 1 on for communication.
int lane_of(EventCategory category);
inline bool is_communication(EventCategory category) {
  return lane_of(category) > 0;
}

struct TimelineEvent {
  int rank = 0;      // its row, >= 0
  std::string name;  // "0F4", "all-reduce bucket 3", ...
  EventCategory category = EventCategory::forward;
  double start_us = 0.0;
  double duration_us = 0.0;
  int stage = -1;       // -1: none
  int microbatch = -1;  // -1: none
  // Of communication, where it is known.
  std::string group = {};       // "tensor", ...
  std::vector<int> ranks = {};  // world ranks that take part; of a message, the peer
  int64_t bytes = -1;           // that the rank sent
  int64_t memory = -1;          // bytes that the rank holds after it
};

struct Timeline {
  std::string title;              // first line; further lines are smaller
  std::vector<std::string> rows;  // names of ranks 0, 1, ...; where missing "rank 0", ...
  std::vector<TimelineEvent> events;
  std::string unit = "ms";  // of its axis; of times that were given without one "units"
};

// The computes of a simulation, one time unit drawn as `us_per_unit` microseconds.
std::vector<TimelineEvent> timeline_events(const Schedule& schedule, const Simulation& simulation,
                                           double us_per_unit);

// The transfers of a simulation, in the rows of the ranks that receive.
std::vector<TimelineEvent> transfer_events(const Schedule& schedule, const Simulation& simulation,
                                           double transfer, double us_per_unit);

// The computes, the waits for receives and the sends of a trace, as row `rank`, counted from
// `zero_wall_ns`. `pipeline`: the rows of the pipeline ranks that the trace names as peers; empty:
// as they are.
std::vector<TimelineEvent> timeline_events(const ExecutionTrace& trace, int rank,
                                           int64_t zero_wall_ns,
                                           const std::vector<int>& pipeline = {});

// A self-contained SVG: a row per rank, micro-batch numbers where they fit, later chunks of a rank
// lighter, communication in thin lanes below the computes, one for each category, legend, axis in
// the timeline's unit, details of a box on hover. Each event is one <rect class="..."> of its
// category. Colours after Okabe and Ito (2008), told apart by colour-blind readers. The page grows
// with the boxes of a row.
std::string timeline_svg(const Timeline& timeline);
// Several under each other on one scale of time, and `notes` in lines of equally wide letters
// below.
std::string timeline_svg(const std::vector<Timeline>& panels, const std::string& notes = "");

// Chrome trace JSON ({"traceEvents": [...], "displayTimeUnit": "ms"}, opens in Perfetto): a process
// per rank, thread 0 compute, one more for each kind of communication of each group; arrows (flow
// events) from what a stage hands on to the compute that takes it, and the rank's memory as a
// counter, where events tell it.
std::string chrome_trace(const Timeline& timeline);

// For a terminal: `columns` wide (at least 40), a line per rank, ASCII.
std::string timeline_text(const Timeline& timeline, int columns = 100);

}  // namespace trident

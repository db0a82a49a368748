// Draws a timeline of a run or of a simulation: SVG, Chrome trace, plain text. Pure functions.
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
  all_reduce,          // other: loss and norm, tied embeddings
  token_dispatch,      // tokens to the ranks that hold their experts
  token_combine,       // the experts' results back
  context_parallel,    // keys, values or positions of the ranks that share a sample
};
inline constexpr int event_categories = 13;

// "forward", ..., "context_parallel": the `cat` field of the Chrome trace.
const char* to_string(EventCategory category);

// The lane of a category in a drawing: 0 for computes, 1 and up for communication. Each
// communication category has its own lane, as it may overlap compute and other communication.
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
  // The next three fields describe communication, where known.
  std::string group = {};       // "tensor", ...
  std::vector<int> ranks = {};  // the participating world ranks; for a message the peer
  int64_t bytes = -1;           // bytes that the rank sent
  int64_t memory = -1;          // bytes that the rank holds after the event
};

struct Timeline {
  std::string title;              // first line; further lines are smaller
  std::vector<std::string> rows;  // names of rows 0, 1, ...; a missing name is "rank 0", ...
  std::vector<TimelineEvent> events;
  std::string unit = "ms";  // unit of the axis; "units" for times given without one
};

// The computes of a simulation. One time unit is drawn as `us_per_unit` microseconds.
std::vector<TimelineEvent> timeline_events(const Schedule& schedule, const Simulation& simulation,
                                           double us_per_unit);

// The transfers of a simulation, in the rows of the receiving ranks.
std::vector<TimelineEvent> transfer_events(const Schedule& schedule, const Simulation& simulation,
                                           double transfer, double us_per_unit);

// The computes, the waits for receives and the sends of a trace, as row `rank`, with times from
// `zero_wall_ns`. `pipeline` maps the pipeline ranks that the trace names as peers to rows; empty:
// the identity.
std::vector<TimelineEvent> timeline_events(const ExecutionTrace& trace, int rank,
                                           int64_t zero_wall_ns,
                                           const std::vector<int>& pipeline = {});

// A self-contained SVG with a row per rank. It has micro-batch numbers where they fit, lighter
// colours for later chunks of a rank, thin lanes of communication below the computes (one per
// category), a legend, an axis in the timeline's unit, and an event's details on hover. Each event
// is one <rect class="..."> of its category. The colours, after Okabe and Ito (2008), suit
// colour-blind readers. The page widens with the number of rectangles of a row.
std::string timeline_svg(const Timeline& timeline);
// Several timelines below each other on one time scale, with `notes` in monospaced lines below.
std::string timeline_svg(const std::vector<Timeline>& panels, const std::string& notes = "");

// Chrome trace JSON ({"traceEvents": [...], "displayTimeUnit": "ms"}), which Perfetto opens. It has
// a process per rank, thread 0 for compute, and one more thread per communication category of each
// group. Arrows (flow events) lead from a stage's output to the compute that consumes it. The
// rank's memory is a counter, where events have it.
std::string chrome_trace(const Timeline& timeline);

// ASCII for a terminal, `columns` wide (at least 40), with a line per rank.
std::string timeline_text(const Timeline& timeline, int columns = 100);

}  // namespace trident

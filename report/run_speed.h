// How fast a run was: what its summary, its report and a sweep tell alike.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "report/iteration_metrics.h"
#include "report/run_about.h"

namespace trident {

// FLOP/s of all machines that worked at an iteration, 0: unknown.
using RateOf = std::function<double(const IterationMetrics&)>;

// Totals over iterations, but those without a time.
struct RunSpeed {
  std::int64_t iterations = 0;  // that count
  bool without_first = false;
  double seconds = 0;            // that they took
  double tokens_per_second = 0;  // their tokens over that time
  double step_ms = 0;            // that time over their number: the mean
  double flops_per_second = 0;   // their FLOPs over that time
  // Their FLOPs over what the machines could have done in that time, at most 1; 0: unknown.
  double mfu = 0;
  // Of that time: means that weigh each iteration by its time.
  double bubble_ratio = 0, bubble_ratio_wall = 0, bubble_predicted = 0;
};
// Of all of these.
RunSpeed total_of(std::span<const IterationMetrics>, const RateOf& = {});
// Of a run: all but its first iteration, which still makes buffers and cached products, and counts
// where there is no other.
RunSpeed speed_of(const std::vector<IterationMetrics>&, const RateOf&);

// The rates by which MFU is told of a run. Each iteration has that of the machines of its start;
// for all of them the best that is known counts, also where it was found later, and what a step has
// reached. Folders of earlier versions tell no rates: there it follows from the lines, and the
// highest counts.
class RunRates {
 public:
  RunRates(const RunAbout&, const std::vector<IterationMetrics>&);
  double of(std::int64_t iteration) const;
  // The share of an iteration; 0: unknown.
  double mfu(const IterationMetrics&) const;
  RateOf function() const {
    return [this](const IterationMetrics& m) { return of(m.iteration); };
  }

 private:
  struct Part {
    std::int64_t after = 0;  // iterations
    double rate = 0;
  };
  std::vector<Part> parts_;  // by `after`
};

}  // namespace trident

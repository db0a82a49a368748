// The speed of a run, computed in one way for its summary, its report and a sweep.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "report/iteration_metrics.h"
#include "report/run_about.h"

namespace trident {

// The FLOP/s of all machines that worked at an iteration; 0: unknown.
using RateOf = std::function<double(const IterationMetrics&)>;

// Totals over iterations. Iterations without a time don't count.
struct RunSpeed {
  std::int64_t iterations = 0;  // number of iterations that count
  bool without_first = false;
  double seconds = 0;            // their time
  double tokens_per_second = 0;  // their tokens over that time
  double step_ms = 0;            // that time over their number: the mean
  double flops_per_second = 0;   // their FLOPs over that time
  // Their FLOPs over the FLOPs that the machines could have done in that time, at most 1; 0:
  // unknown.
  double mfu = 0;
  // Means in which each iteration counts by its time.
  double bubble_ratio = 0, bubble_ratio_wall = 0, bubble_predicted = 0;
};
// Over all given iterations.
RunSpeed total_of(std::span<const IterationMetrics>, const RateOf& = {});
// Over a run without its first iteration, which still makes buffers and cached products. The first
// iteration counts if there is no other.
RunSpeed speed_of(const std::vector<IterationMetrics>&, const RateOf&);

// The rates against which the MFU of a run is computed. Each iteration has the rate of the machines
// of its start. For each kind of machine the best known rate counts, even if it was found later; so
// does a higher rate that a step has reached. Folders of earlier versions hold no rates. There the
// rate follows from the lines of metrics.jsonl, and the highest rate counts.
class RunRates {
 public:
  RunRates(const RunAbout&, const std::vector<IterationMetrics>&);
  double of(std::int64_t iteration) const;
  // The MFU of an iteration; 0: unknown.
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

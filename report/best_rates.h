// The best rate of products that is known of each kind of machine. MFU is a share of it: one
// measurement at a run's start is by chance too low, as other load only ever slows one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "report/iteration_metrics.h"
#include "report/product_rate.h"

namespace trident {

// FLOP/s by kind of machine (machine_kind()).
using BestRates = std::map<std::string, double>;

// "AMD EPYC 7B13, avx2, 2 threads, fp32": what a rate depends on. `instructions` and `threads` of a
// CPU. `way`: how products of this type are done where there are several ways, "" where there
// is one.
struct MachineKind {
  std::string processor, instructions;  // a GPU has no instructions here
  std::int64_t threads = 0;             // that work together; 0: a GPU
  std::string dtype, way = {};
};
std::string name_of(const MachineKind&);

// Keeps the higher of both.
void raise(BestRates&, const std::string& kind, double rate);
void raise(BestRates&, const BestRates& more);

// The machines that work for a job, and how fast each kind is known to be. Its rate is that of all
// of them together.
struct JobRate {
  std::map<std::string, double> machines;  // how many of each kind
  BestRates best;
  std::string busy = {};  // measurements disagree: a sentence for people, "" where they agree

  double total() const;  // FLOP/s; 0 where one isn't known
  // What has been reached can be reached: by a step that was faster than total(). False: it wasn't.
  bool reached(double rate);
};

// Where the median of what was measured at a start is more than 15% below the best that is known,
// the machine is busy with something else, or slowed down: a sentence that says so, else "".
// `file`: where the best one was read, "" where it wasn't; it may be of another machine, or
// damaged.
std::string busy_text(const std::string& kind, const MeasuredRate&, double best,
                      const std::string& file = {});

// The file in which they are kept from run to run. One that is missing or damaged holds none.
BestRates read_best_rates(const std::string& path);
// Adds them to what the file holds by now, for whoever comes next: the higher of both stays. Where
// the file can't be written nothing is kept. "" is no file.
void keep_best_rates(const std::string& path, const BestRates&) noexcept;

}  // namespace trident

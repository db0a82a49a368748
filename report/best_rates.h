// The best known rate of matrix products of each kind of machine, against which MFU is computed. A
// single measurement at a run's start may be too low by chance, as other load only slows it down.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "report/iteration_metrics.h"
#include "report/product_rate.h"

namespace trident {

// FLOP/s by kind of machine (name_of(MachineKind)).
using BestRates = std::map<std::string, double>;

// The properties on which a rate depends: "AMD EPYC 7B13, avx2, 2 threads, fp32". `instructions`
// and `threads` are of a CPU. `way`: how products of this type are computed if there are several
// ways, else "".
struct MachineKind {
  std::string processor, instructions;  // a GPU has no instructions here
  std::int64_t threads = 0;             // threads that work together; 0: a GPU
  std::string dtype, way = {};
};
std::string name_of(const MachineKind&);

// Keeps the higher rate of each kind.
void raise(BestRates&, const std::string& kind, double rate);
void raise(BestRates&, const BestRates& more);

// The machines that work for a job, and the best known rate of each kind. The rate of the job is
// the sum over all its machines.
struct JobRate {
  std::map<std::string, double> machines;  // the number of machines of each kind
  BestRates best;
  std::string busy = {};  // a sentence for people if measurements disagree, else ""

  double total() const;  // FLOP/s; 0 if the rate of a machine is unknown
  // Reports the rate of a step. If it is higher than total(), raises the best rates to it and
  // returns true, because a rate that was reached is possible.
  bool reached(double rate);
};

// If the median of the measurements at a start is more than 15% below the best known rate, the
// machine is busy with other work, or slowed down: returns a sentence that says so, else "".
// `file`: the file that held the best rate, "" if no file did. That file may be of another machine,
// or damaged.
std::string busy_text(const std::string& kind, const MeasuredRate&, double best,
                      const std::string& file = {});

// Reads the file that keeps the rates from run to run. A missing or damaged file holds no rates.
BestRates read_best_rates(const std::string& path);
// Adds the rates to the current contents of the file, for later runs. The higher rate of each kind
// stays. If the file can't be written, nothing is kept. "" is no file.
void keep_best_rates(const std::string& path, const BestRates&) noexcept;

}  // namespace trident

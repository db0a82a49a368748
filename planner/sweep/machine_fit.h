// Fits a machine's efficiencies to steps that were measured on it, and rates its predictions
// against measurements.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "planner/machine/machine.h"
#include "settings/config.h"

namespace trident {

// A measured step.
struct FitPoint {
  std::string label;
  const Config* config = nullptr;
  // True where `seconds` are those of the replayed step, with a core for every rank and free
  // messages (StepFigures::replayed_ms), since the machine has fewer cores.
  bool replayed = false;
  double seconds = 0;
};

// Returns the machine's prediction for that step. Throws RequestError like simulate_step.
double predicted_seconds(const Config&, const Machine&, bool replayed);

// The agreement of predictions with measurements. agreement() needs both for the same points, in
// the same order.
struct Agreement {
  double median_error = 0, ninth_decile = 0;  // of |predicted / measured - 1|
  // Spearman's rank correlation; values within `noise` of each other count as equal.
  double order = 1;
  // The measurement of the point with the best prediction, over the best measurement, less 1.
  double choice = 0;
};
Agreement agreement(const std::vector<double>& predicted, const std::vector<double>& measured,
                    double noise);

struct MachineFit {
  Machine machine;                    // with fitted efficiencies of products, memory and links
  std::vector<double> before, after;  // predicted seconds by point
};
// Throws RequestError where there are fewer points than constants.
void need_points_to_fit(std::size_t points);
// Fits by least squares of the logarithms of predicted over measured, weakly regularised towards
// the start, within the limits of a machine's file. Throws RequestError where there are fewer
// points than constants.
MachineFit fit_machine(const Machine&, const std::vector<FitPoint>&);

}  // namespace trident

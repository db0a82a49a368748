// A machine's constants from steps that were measured on it, and how well it then tells them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "planner/machine/machine.h"
#include "settings/config.h"

namespace trident {

// A step that was measured.
struct FitPoint {
  std::string label;
  const Config* config = nullptr;
  // `seconds` are of the step replayed, with a core for every rank and free messages
  // (StepFigures::replayed_ms), since there are fewer.
  bool replayed = false;
  double seconds = 0;
};

// What the machine predicts for the like of that. RequestError as simulate_step.
double predicted_seconds(const Config&, const Machine&, bool replayed);

// How well predictions agree with measurements, of as many points each.
struct Agreement {
  double median_error = 0, ninth_decile = 0;  // of |predicted / measured - 1|
  // Spearman's correlation of the orders; those within `noise` of each other count as equal.
  double order = 1;
  double choice = 0;  // measured, of the point with the best prediction over the best point, less 1
};
Agreement agreement(const std::vector<double>& predicted, const std::vector<double>& measured,
                    double noise);

struct MachineFit {
  Machine machine;                    // with other efficiencies, of products, memory and links
  std::vector<double> before, after;  // predicted seconds by point
};
// RequestError where there are fewer than constants.
void need_points_to_fit(std::size_t points);
// Within what a machine's file may have. Least squares of the logarithms of predicted over
// measured, loosely tied to where it begins. RequestError where there are fewer points than
// constants.
MachineFit fit_machine(const Machine&, const std::vector<FitPoint>&);

}  // namespace trident

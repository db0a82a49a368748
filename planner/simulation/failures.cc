#include "planner/simulation/failures.h"

#include <cmath>

namespace trident {

double best_save_interval(double cost, double mtbf) {
  if (cost >= 2 * mtbf) return mtbf;
  const double part = cost / (2 * mtbf);
  return std::sqrt(2 * cost * mtbf) * (1 + std::sqrt(part) / 3 + part / 9) - cost;
}

double goodput(double interval, double cost, double restart, double mtbf) {
  return interval / mtbf / (std::exp(restart / mtbf) * std::expm1((interval + cost) / mtbf));
}

}  // namespace trident

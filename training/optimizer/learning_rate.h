// Learning-rate schedules, each with warm-up.
#pragma once

#include <cstdint>

#include "config/config.h"

namespace trident {

// The rate of iteration k, counted from 0. During warm-up of w iterations lr·(k + 1)/w; after it
// with t = min(1, (k + 1 - w)/(D - w)), D = decay_iters:
//   constant     lr
//   linear       min + (lr - min)(1 - t)
//   cosine       min + (lr - min)(1 + cos πt)/2
//   polynomial   min + (lr - min)(1 - t)^power
//   exponential  min + (lr - min)·gamma^t
//   piecewise    max(min, lr·gamma^j), j the milestones (iterations from 1) that k + 1 has passed
double learning_rate(const LrSchedulerConfig&, double lr, std::int64_t k);

}  // namespace trident

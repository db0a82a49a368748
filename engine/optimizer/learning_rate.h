// Learning-rate schedules, each with warm-up.
#pragma once

#include <cstdint>

#include "settings/config.h"

namespace trident {

// The rate of iteration k, counted from 0. During warm-up of w iterations lr·(k + 1)/w; after it
// with t = min(1, (k + 1 - w)/(D - w)), D = decay_iters:
//   constant     lr
//   linear       min + (lr - min)(1 - t)
//   cosine       min + (lr - min)(1 + cos πt)/2
//   cosine_with_restarts
//                num_cycles such cosines, each cycle_mult times as long as the one before, cut at
//                whole iterations; the last iteration of each has min
//                (https://arxiv.org/abs/1608.03983)
//   wsd          lr; from the last d = wsd_decay_iters of D on min + (lr - min)·f(s), with
//                s = min(1, (k + 1 - (D - d))/d) and, by wsd_decay_style, f linear 1 - s, cosine
//                (1 + cos πs)/2, exponential 2·0.5^s - 1, minus_sqrt 1 - √s, as Megatron-LM has
//                them
//   polynomial   min + (lr - min)(1 - t)^power
//   exponential  min + (lr - min)·gamma^t
//   piecewise    max(min, lr·gamma^j), j the milestones (iterations from 1) that k + 1 has passed
double learning_rate(const LrSchedulerConfig&, double lr, std::int64_t k);

}  // namespace trident

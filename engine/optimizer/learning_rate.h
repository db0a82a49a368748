// Learning-rate schedules, each with warm-up. The function is pure; the names are those of
// /scheduler/type in settings/fields_training.cc.
#pragma once

#include <cstdint>

#include "settings/config.h"

namespace trident {

// The learning rate of iteration k, counted from 0. During a warm-up of w iterations it is lr·(k +
// 1)/w. After it, with t = min(1, (k + 1 - w)/(D - w)), D = decay_iters:
//   constant     lr
//   linear       min + (lr - min)(1 - t)
//   cosine       min + (lr - min)(1 + cos πt)/2
//   cosine_with_restarts
//                num_cycles cosines, each cycle_mult times as long as the one before, rounded to
//                full iterations; the last iteration of each has min
//                (https://arxiv.org/abs/1608.03983)
//   wsd          lr; from the last d = wsd_decay_iters of D on min + (lr - min)·f(s), with
//                s = min(1, (k + 1 - (D - d))/d) and, by wsd_decay_style, f linear 1 - s, cosine
//                (1 + cos πs)/2, exponential 2·0.5^s - 1, minus_sqrt 1 - √s, as in Megatron-LM
//   polynomial   min + (lr - min)(1 - t)^power
//   exponential  min + (lr - min)·gamma^t
//   piecewise    max(min, lr·gamma^j), where k + 1 has passed j milestones (iterations from 1)
// Throws RequestError for an unknown type or wsd_decay_style.
double learning_rate(const LrSchedulerConfig&, double lr, std::int64_t k);

}  // namespace trident

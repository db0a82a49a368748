// Layouts that change no bit of a run of two data ranks.
#pragma once

#include <vector>

#include "support/training_run.h"

namespace trident::testing {

struct LayoutVariation {
  const char* name;
  Layout layout;
  Overrides overrides;
};

// ZeRO stages that reduce once a step, schedules and recomputation.
inline const std::vector<LayoutVariation> layout_variations{
    {"zero2",
     {2, 1, 1},
     {"zero_optimization.stage=2", "zero_optimization.reduce_each_micro_batch=false"}},
    {"zero3",
     {2, 1, 2},
     {"zero_optimization.stage=3", "zero_optimization.reduce_each_micro_batch=false",
      "zero_optimization.stage3_param_persistence_threshold=100"}},
    {"zb_h1", {2, 1, 2}, {"pipeline.schedule=zb_h1"}},
    {"interleaved", {2, 1, 2, 2}, {}},
    {"dualpipev", {2, 1, 2, 2}, {"pipeline.schedule=dualpipev"}},
    {"attention recomputed", {2, 1, 1}, {"activation_checkpointing.granularity=selective"}},
    {"recomputed", {2, 1, 1}, {"activation_checkpointing.granularity=full"}}};

}  // namespace trident::testing

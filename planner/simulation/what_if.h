// What may be otherwise than a machine's file says, and what a step's time comes to in the end.
#pragma once

#include <cstdint>
#include <string>

namespace trident {

struct WhatIf {
  // The devices at a place of the pipeline are so many times slower; those beside them wait.
  double straggler = 1;
  std::int64_t straggler_place = 0;
  // The link to other nodes of the node at a place of the pipeline is so many times slower.
  double slow_link = 1;
  std::int64_t slow_place = 0;
  // Messages between stages arrive at once.
  bool free_messages = false;

  // "FACTOR" or "FACTOR:PLACE". RequestError, with the option's name, on anything else.
  static void read(const std::string& option, const std::string& text, double& factor,
                   std::int64_t& place);
};

// A whole run. 0: not asked for.
struct RunPlan {
  double tokens = 0;              // that are to be trained on
  double mtbf_hours = 0;          // between failures of the whole job
  double checkpoint_seconds = 0;  // that training waits for one
  double restart_seconds = 0;     // from a failure to the next step
};

}  // namespace trident

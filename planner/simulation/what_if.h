// Deviations from a machine's file for a simulation (slow devices, slow links), and the plan of a
// whole run.
#pragma once

#include <cstdint>
#include <string>

namespace trident {

struct WhatIf {
  // The devices at this place of the pipeline are slower by this factor; all others wait for them.
  double straggler = 1;
  std::int64_t straggler_place = 0;
  // The link to other nodes is slower by this factor, for the node at this place of the pipeline.
  double slow_link = 1;
  std::int64_t slow_place = 0;
  // Messages between stages arrive at once.
  bool free_messages = false;

  // Parses "FACTOR" or "FACTOR:PLACE". Throws RequestError, with the option's name, on anything
  // else.
  static void read(const std::string& option, const std::string& text, double& factor,
                   std::int64_t& place);
};

// A whole run. A value of 0 means that it isn't set.
struct RunPlan {
  double tokens = 0;              // training tokens of the run
  double mtbf_hours = 0;          // hours between failures of the whole job
  double checkpoint_seconds = 0;  // training time that a checkpoint costs
  double restart_seconds = 0;     // time from a failure to the next step
};

}  // namespace trident

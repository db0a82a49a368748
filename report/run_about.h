// run.json: facts about a run besides its config and its metrics, for its report.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/best_rates.h"

namespace trident {

// How a run was started.
struct RunStart {
  double time = 0;         // seconds since 1970
  std::int64_t after = 0;  // iterations before this start
  std::vector<std::pair<std::string, std::string>> facts =
      {};                                       // "command", "version", "machine", …
  std::map<std::string, double> machines = {};  // JobRate::machines
};

struct RunAbout {
  std::vector<RunStart> starts = {};
  std::int64_t parameters = 0;
  std::map<std::string, std::int64_t> predicted_memory =
      {};                     // bytes of the largest rank, by category
  std::string sample = {};    // text that the weights have generated
  BestRates best_rates = {};  // of the machines of all starts; MFU is computed against them
};

std::string about_text(const RunAbout&);
// Keys that a damaged text lacks keep their default.
RunAbout about_of(const std::string& text);

}  // namespace trident

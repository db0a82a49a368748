// Starts `trident train` in processes, and again from the newest checkpoint when they fail.
//
// A start that ends with exit code 0 or 130 is the last one; so is a first start whose request is
// wrong (2), one that a stop was passed on to, and the one after max_restarts. Between two starts
// the supervisor waits, twice as long after each start that got no further than those before.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "run/startup/job_config.h"
#include "run/supervisor/goodput.h"

namespace trident {

struct SupervisorRequest {
  ConfigRequest config;
  std::int64_t max_restarts = 10;
  // With one of them each start takes as many ranks as there are, within these bounds.
  std::optional<std::int64_t> min_ranks, max_ranks;
  double backoff = 1;             // seconds before the first restart
  std::vector<std::string> with;  // the command that starts the ranks, before "-n N"; {}: by itself
  std::string hostfile;           // of mpirun; "": none
  bool json = false;              // each start reports in JSON
};

// The process that supervises, as its environment describes it.
struct SupervisorSurroundings {
  std::string program;  // the path of `trident`
  bool in_slurm = false;
  std::optional<std::int64_t> slurm_tasks = {};
  std::vector<std::string> remote_shell;        // the command that reaches a host, before its name
  const std::atomic<bool>& stop;                // set by a signal: passed on to the ranks
  std::function<void(const std::string&)> say;  // a line for people
};

struct SupervisorResult {
  int code = 0;  // the exit code: 0, 2 (the request is wrong), 3 (failed) or 130 (stopped)
  Goodput goodput;
  std::string last_report;  // of the last start, where JSON was asked for
};

// To the end of the last start. RequestError where the config can't be supervised: it has to save
// checkpoints. Error where the first start can't be made. The calling process adopts the orphans of
// its children.
SupervisorResult supervise(const SupervisorRequest&, const SupervisorSurroundings&);

}  // namespace trident

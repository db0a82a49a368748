// Starts `trident train` in processes, and restarts it from the newest checkpoint when it fails.
//
// It makes no further start after exit code 0 or 130, after a first start whose request is wrong
// (2), after it has passed a stop on, or after max_restarts restarts. Between two starts the
// supervisor waits; the wait doubles after each start that got no further than the earlier ones, up
// to the larger of 60 seconds and `backoff`.
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
  // If one of them is set, each start takes the available ranks within these bounds.
  std::optional<std::int64_t> min_ranks, max_ranks;
  double backoff = 1;             // seconds before the first restart
  std::vector<std::string> with;  // the command that starts the ranks, before "-n N"; {}: chosen
  std::string hostfile;           // for mpirun; "": none
  bool json = false;              // each start reports in JSON
};

// The environment of the supervising process.
struct SupervisorSurroundings {
  std::string program;  // the path of `trident`
  bool in_slurm = false;
  std::optional<std::int64_t> slurm_tasks = {};
  std::vector<std::string>
      remote_shell;               // the command that reaches a host, without the host's name
  const std::atomic<bool>& stop;  // set by a signal; the supervisor passes it on to the ranks
  std::function<void(const std::string&)> say;  // a line for people
};

struct SupervisorResult {
  int code = 0;  // the exit code: 0, 2 (the request is wrong), 3 (failed) or 130 (stopped)
  Goodput goodput;
  std::string last_report;  // the last start's report, if SupervisorRequest::json is set
};

// Supervises the job until its last start has ended. Throws RequestError if the config does not
// save checkpoints or is otherwise wrong, Error if the first start can't be made. The calling
// process adopts the orphans of its children.
SupervisorResult supervise(const SupervisorRequest&, const SupervisorSurroundings&);

}  // namespace trident

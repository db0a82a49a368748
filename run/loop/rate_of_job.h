// The rate of matrix products, in FLOP/s, of all machines of a job. MFU is a share of it.
#pragma once

#include <string>

#include "report/best_rates.h"
#include "run/processes/devices.h"
#include "run/processes/launch.h"
#include "settings/config.h"

namespace trident {

// Measures the rate on all machines at once and returns, for each kind of machine, the best of the
// measured rate and the one in `file` (read_best_rates()); the job's first process writes the
// result to `file`. A GPU in the table of run/processes/devices.cc is not measured; its rate is the
// one in its data sheet. Collective over the job's processes; only the first one gets a result.
JobRate rate_of_job(const Config&, const Launch&, const Devices&, const std::string& file);

// Measures again, after a step that was faster than the known rate. For a job of one process, which
// must do no other work meanwhile.
void measure_again(JobRate&, const Config&, const Launch&, const Devices&, const std::string& file);

}  // namespace trident

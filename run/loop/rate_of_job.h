// The rate of products of all machines that work for a job.
#pragma once

#include <string>

#include "report/best_rates.h"
#include "run/launch/devices.h"
#include "run/launch/launch.h"
#include "settings/config.h"

namespace trident {

// Measured on all machines at once (product_rate.h), the best that is known of each kind (`file`,
// read_best_rates; what was found goes there, from the job's first process); of GPUs that are in
// the table of devices.h what their maker says. Collective over the job's processes; only the first
// gets machines.
JobRate rate_of_job(const Config&, const Launch&, const Devices&, const std::string& file);

// Again, where a step of this job, of one process, was faster than all that was known. Nothing else
// may be at work here.
void measure_again(JobRate&, const Config&, const Launch&, const Devices&, const std::string& file);

}  // namespace trident

// The times of `trident schedule --times`, and a simulation with them.
#include <cmath>

#include "fuzz/fuzzing.h"
#include "scheduler/report.h"
#include "scheduler/schedules.h"

namespace trident::fuzzing {

void fuzz_times(std::string_view input) {
  accepted([&] {
    const Times times = parse_times(std::string(input));
    ScheduleRequest request{.kind = "1f1b", .stages = 3, .microbatches = 4};
    request.times = times.share;
    request.transfer = times.transfer;
    const ScheduleReport report = make_report(request);
    require(std::isfinite(report.simulation.bubble.makespan), "a simulation ends");
    report_text(report);
  });
}

}  // namespace trident::fuzzing

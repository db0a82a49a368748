// A schedule as CSV, which is checked, simulated and drawn.
#include "fuzz/fuzzing.h"
#include "scheduler/csv.h"
#include "scheduler/report.h"

namespace trident::fuzzing {

void fuzz_schedule(std::string_view input) {
  Schedule schedule;
  if (!accepted([&] { schedule = from_csv(input, "file"); })) return;
  const Schedule again = from_csv(to_csv(schedule), "file");
  require(again.ranks == schedule.ranks && again.placement == schedule.placement &&
              again.microbatches == schedule.microbatches,
          "a schedule that is read and written is the same");
  accepted([&] {
    const ScheduleReport report = make_report(schedule, {}, 0.5);
    report_text(report);
    report_json(report);
  });
}

}  // namespace trident::fuzzing

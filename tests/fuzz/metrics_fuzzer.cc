// A metrics.jsonl, as a run that resumes and `trident launch` read it.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "fuzz/fuzzing.h"
#include "report/metrics_file.h"
#include "run/supervisor/goodput.h"
#include "support/temp_dir.h"

namespace trident::fuzzing {

void fuzz_metrics(std::string_view input) {
  const std::string folder = empty_folder(), path = folder + "/" + MetricsFile::kName;
  testing::spit(path, input);
  GoodputCounter counter(path);
  counter.started();
  accepted([&] { read_metrics(path); });
  constexpr std::int64_t last = 3;
  accepted([&] { MetricsFile::require_resumable(folder, last); });
  const bool resumed = accepted([&] {
    MetricsFile file = MetricsFile::resume(folder, last);
    file.append({{"iteration", last + 1}, {"iteration_time_ms", 1000.0}});
  });
  if (resumed) {
    const auto lines = read_metrics(path);
    for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
      require(lines[i]["iteration"].get<std::int64_t>() <= last,
              "a resumed run keeps no iteration after its beginning");
    }
    require(lines.back()["iteration"] == last + 1, "a line that a run adds is the last one");
  }
  counter.ended(1);
  text_of(counter.now());
}

}  // namespace trident::fuzzing

// A run's folder, from which `trident report` makes a page: metrics.jsonl, config.json, run.json
// and timeline.json, one after the other with a line "----" between them.
#include <filesystem>

#include "fuzz/fuzzing.h"
#include "report/run_report.h"
#include "support/temp_dir.h"

namespace trident::fuzzing {

void fuzz_report(std::string_view input) {
  const std::string folder = empty_folder();
  for (const char* name : {"metrics.jsonl", "config.json", "run.json", "timeline.json"}) {
    const std::string_view cut = "----\n";
    const std::size_t end = std::min(input.find(cut), input.size());
    testing::spit(folder + "/" + name, input.substr(0, end));
    input.remove_prefix(std::min(input.size(), end + cut.size()));
  }
  accepted([&] {
    const std::string page = run_report({read_run(folder), read_run(folder)});
    std::size_t ends = 0;
    for (std::size_t at = page.find("</script"); at != std::string::npos;
         at = page.find("</script", at + 1)) {
      ++ends;
    }
    require(ends == 3, "nothing in the data ends a script");
  });
}

}  // namespace trident::fuzzing

// The list of a run's starts, from which the history of the run's present state follows.
#include "base/files/file_system.h"
#include "checkpoint/starts.h"
#include "fuzz/fuzzing.h"
#include "support/temp_dir.h"

namespace trident::fuzzing {

void fuzz_starts(std::string_view input) {
  const std::string folder = empty_folder();
  testing::spit(folder + "/.trident-starts", input);
  Starts before;
  try {
    before = read_starts(folder);
  } catch (const Error&) {  // an unreadable list is a correct answer
    return;
  }
  const std::string id = record_start(real_files(), folder, before.run, 7);
  const Starts after = read_starts(folder, before.run);
  require(after.list.back().id == id && after.leads_here(id, 8), "a start is the last one");
  require(after.list.size() == before.list.size() + 1 || before.list.size() >= 10'000,
          "no start is forgotten");
  for (const Starts::Start& one : before.list) {
    require(!after.leads_here(one.id, 8) || one.id == id,
            "a later save of an earlier start is no ancestor");
  }
  record_on_nodes(real_files(), folder, before.run, id);
  require(read_starts(folder).any_on_nodes(), "that nodes have something is kept");
  record_on_nodes(real_files(), folder, before.run, "");
  require(!read_starts(folder).any_on_nodes(), "that they have nothing is kept");
}

}  // namespace trident::fuzzing

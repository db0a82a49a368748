// The file in a run's folder that names its owner.
#include <algorithm>

#include "fuzz/fuzzing.h"
#include "run/folders/locked_folder.h"
#include "support/temp_dir.h"

namespace trident::fuzzing {

void fuzz_run_file(std::string_view input) {
  const std::string folder = empty_folder();
  testing::spit(folder + "/" + run_file, input);
  LockedFolder held{.path = folder};
  lock_folder(held, true, 0);
  require(held.still_held(), "a folder that no other process holds can be held");
  const auto runs = held.runs();
  require(std::ranges::find(runs, "") == runs.end(), "a run has an id");
  sign(held, owner_of("fuzz", "train", runs));
  const LockedFolder signed_one = read_without_lock(folder);
  require(signed_one.run() == "fuzz", "a signed folder names its run");
}

}  // namespace trident::fuzzing

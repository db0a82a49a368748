// What an earlier run has left where its log files are replaced.
#pragma once

#include <string>

namespace trident {

// A file in `directory` that a run would replace, by the names that this program gives them; ""
// where there is none.
std::string file_of_a_run(const std::string& directory);

// Removes the files of an earlier run in `directory` that the next one would not replace but that
// are drawn or read along with its own: TensorBoard's events, timeline, trace, report and dumps of
// gradients, by the names that this program gives them. Other files stay; so does everything where
// no metrics.jsonl says that a run was here. Throws Error where one can't be removed.
void remove_earlier_run(const std::string& directory);

}  // namespace trident

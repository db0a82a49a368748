// The files of an earlier run, in a directory where a new run writes its log files.
#pragma once

#include <string>

namespace trident {

// The name of a file in `directory` that a run would replace, known by the names that this program
// gives its files; "" if there is none.
std::string file_of_a_run(const std::string& directory);

// Removes the files of an earlier run in `directory` that the next run would not replace but that
// are drawn or read along with its own files: TensorBoard's events, timeline, trace, report and
// gradient dumps, known by the names that this program gives them. Other files stay. All files stay
// if there is no metrics.jsonl, which shows that a run was here. Throws Error if a file can't be
// removed.
void remove_earlier_run(const std::string& directory);

}  // namespace trident

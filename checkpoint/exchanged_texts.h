// Collectives on texts of any length. All functions are collective over `group`, and every rank
// must call them.
#pragma once

#include <string>
#include <vector>

#include "core/context.h"
#include "parallel/process_group.h"

namespace trident {

// The text of each rank, by rank. Each rank needs memory for the longest text times the number of
// ranks.
std::vector<std::string> exchanged_texts(Context&, const ProcessGroup& group,
                                         const std::string& own);

// The failures of all ranks, one line each with the rank's number; "" if every `own` is empty.
// Equal texts are listed once.
std::string agreed_failure(Context&, const ProcessGroup& group, const std::string& own);

// Rank `root`'s text, on all ranks.
std::string text_from(Context&, const ProcessGroup& group, int root, const std::string& own);

}  // namespace trident

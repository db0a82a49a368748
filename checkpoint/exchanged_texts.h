// Texts of any length that all ranks tell each other.
#pragma once

#include <string>
#include <vector>

#include "core/context.h"
#include "parallel/process_group.h"

namespace trident {

// What each rank of the group has given, by rank. Collective. Each rank has memory for the longest
// of all ranks.
std::vector<std::string> exchanged_texts(Context&, const ProcessGroup& group,
                                         const std::string& own);

// What has failed on ranks, a line each that names them; "" where every `own` is empty. Collective.
std::string agreed_failure(Context&, const ProcessGroup& group, const std::string& own);

// Rank `root`'s, on all ranks. Collective.
std::string text_from(Context&, const ProcessGroup& group, int root, const std::string& own);

}  // namespace trident

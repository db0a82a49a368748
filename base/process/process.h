// This process among the others of a job, for people.
#pragma once

#include <string>

namespace trident {

std::string host_name();
// "AMD EPYC 9554", as the system calls it, or "unknown".
std::string processor_name();

// "rank 3 on node7".
std::string rank_text(int rank, const std::string& host);

// A line on stderr, at once and in one piece, so that those of several processes don't mix.
void print_error(const std::string& text) noexcept;

}  // namespace trident

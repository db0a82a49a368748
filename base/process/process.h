// The names of this process, its host and its processor, for messages.
#pragma once

#include <string>

namespace trident {

std::string host_name();
// The system's name of the processor, such as "AMD EPYC 9554", or "unknown".
std::string processor_name();

// "rank 3 on node7".
std::string rank_text(int rank, const std::string& host);

// Writes a line to stderr, at once and in one piece, so that lines of several processes don't mix.
void print_error(const std::string& text) noexcept;

}  // namespace trident

// Whether the system lets this process have the threads that a run needs.
#pragma once

#include <cstdint>
#include <string>

namespace trident {

// Starts so many threads, which do nothing, and ends them. RequestError where the system allows
// fewer: "`who` need N threads; the system allows only M more (…)". OpenMP would end the process.
void need_threads(std::int64_t wanted, const std::string& who);

// What may be in the way of another thread, and what to do about it.
std::string thread_limit_text();

}  // namespace trident

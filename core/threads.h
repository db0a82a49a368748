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

// Where the calling thread may run on fewer than `count` cores, as in a process that a launcher has
// bound, it may run from here on where the launcher itself may.
void want_cores(int count);

// What the calling thread asks of the system less than others do.
enum class IoPriority : std::uint8_t {
  usual,
  low,  // the lowest of the best-effort class
  idle  // when nobody else wants the disk
};
// `niceness` more than now, 19 at most. What the system refuses stays as it is; an I/O scheduler
// may know no priorities.
void lower_priority(int niceness, IoPriority io);

}  // namespace trident

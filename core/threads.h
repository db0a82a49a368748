// The system's limits on threads: whether this process may start a number of them, on which cores
// they run, and at which priority. settings/resolve.cc chooses the number of a rank's threads.
#pragma once

#include <cstdint>
#include <string>

namespace trident {

// Verifies that the system allows this process `wanted` more threads: starts them idle, and ends
// them. Throws RequestError if the system allows fewer: "`who` need N threads; the system allows
// only M more here: …". OpenMP would end the process.
void need_threads(std::int64_t wanted, const std::string& who);

// A hint for people: the limits that may prevent another thread, and how to avoid them.
std::string thread_limit_text();

// If the calling thread may run on fewer than `count` cores, as in a process that a launcher has
// bound, allows it the launcher's cores, too.
void want_cores(int count);

// The priority of the calling thread's disk accesses.
enum class IoPriority : std::uint8_t {
  usual,
  low,  // the lowest of the best-effort class
  idle  // only when no other process wants the disk
};
// Raises the calling thread's niceness by `niceness`, to 19 at most, and sets its I/O priority. A
// request that the system refuses has no effect; an I/O scheduler may ignore priorities.
void lower_priority(int niceness, IoPriority io);

}  // namespace trident

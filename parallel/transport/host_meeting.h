// Meetings of processes on one host, in memory that they share: each has two desks there, and looks
// at the others' in turns of its own.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "parallel/transport/host_memory.h"
#include "parallel/transport/meeting.h"
#include "parallel/transport/wait_table.h"

namespace trident {

// What a meeting has to know of the processes.
struct HostWatch {
  std::function<bool(int)> ended;  // whether a world rank has ended
  WaitTable* waits = nullptr;
  bool spins = false;  // every rank of the host has a core
};

// The seat of world rank `rank` among the members (world ranks by group rank). Throws Error where
// the memory can't be mapped, or is used up.
std::unique_ptr<Meeting> make_host_meeting(const std::shared_ptr<HostMemory>& memory,
                                           std::uint64_t group, std::vector<int> members, int rank,
                                           HostWatch watch);

}  // namespace trident

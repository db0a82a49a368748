// Meetings of processes on one host, in memory that they share: each has two desks there, and looks
// at the others' in turns of its own.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "parallel/transport/host_memory.h"
#include "parallel/transport/shared_rendezvous.h"
#include "parallel/transport/wait_table.h"

namespace trident {

// What a meeting has to know of the processes.
struct HostWatch {
  std::function<bool(int)> ended;  // whether a world rank has ended
  WaitTable* waits = nullptr;
  bool spins = false;    // every rank of the host has a core
  bool fetches = false;  // may_fetch() of all
};

// Whether this process may copy from the memory of another one on its host; `word` is there at
// `address`. Containers often forbid it.
bool may_fetch(int process, std::uint64_t address, std::uint64_t word);

// The seat of world rank `rank` among the members (world ranks by group rank). Throws Error where
// the memory can't be mapped, or is used up.
std::unique_ptr<SharedRendezvous> make_host_rendezvous(const std::shared_ptr<HostMemory>& memory,
                                                       std::uint64_t group,
                                                       std::vector<int> members, int rank,
                                                       HostWatch watch);

}  // namespace trident

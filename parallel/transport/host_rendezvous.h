// The shared-memory rendezvous of processes on one host. Each process has two slots in the shared
// memory, which it uses in turn, and reads the slots of the others.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "parallel/transport/host_memory.h"
#include "parallel/transport/shared_rendezvous.h"
#include "parallel/transport/wait_table.h"

namespace trident {

// The properties of the host's processes that a rendezvous needs.
struct HostWatch {
  std::function<bool(int)> ended;  // whether a world rank has ended
  WaitTable* waits = nullptr;
  bool spins = false;    // every rank of the host has a core
  bool fetches = false;  // may_fetch() holds for all
};

// Whether this process may copy from the memory of another process on its host, which has `word` at
// `address`. Containers often forbid it.
bool may_fetch(int process, std::uint64_t address, std::uint64_t word);

// World rank `rank`'s side of the rendezvous of the members (world ranks by group rank). Null, on
// all members, where the memory is used up. Throws Error where it can't be mapped.
std::unique_ptr<SharedRendezvous> make_host_rendezvous(const std::shared_ptr<HostMemory>& memory,
                                                       std::uint64_t group,
                                                       std::vector<int> members, int rank,
                                                       HostWatch watch);

}  // namespace trident

#include "parallel/collectives/algorithm_choice.h"

#include <fmt/format.h>

#include "base/error.h"
#include "parallel/collectives/by_transport.h"
#include "parallel/collectives/carried.h"
#include "parallel/collectives/direct.h"
#include "parallel/collectives/fetched.h"
#include "parallel/collectives/queued.h"
#include "parallel/collectives/ring.h"
#include "parallel/collectives/shared.h"
#include "parallel/collectives/shared_memory_slots.h"
#include "parallel/collectives/swap.h"
#include "parallel/collectives/tree.h"

namespace trident {
namespace collective_table {
namespace {

using Case = CollectiveCase;
using enum Operation;

// Below this size two processes exchange complete messages sooner than a ring moves its two halves.
constexpr std::int64_t ring_bytes = 128 << 10;

// From this size on, two processes copy faster from each other's memory than over slots. 2
// processes on 2 cores, milliseconds: 1 MiB 0.49 over slots, 4 MiB 2.1, 16 MiB 8.2.
constexpr std::int64_t fetched_bytes = std::int64_t{2} << 20;

bool by_library(const Case& c) {
  return c.by_library && c.asks_for(Algorithm::direct);
}
bool by_memory(const Case& c) {
  return c.sharing == Sharing::tensors && c.asks_for(Algorithm::direct);
}
bool by_slots(const Case& c) {
  return (c.sharing == Sharing::slots || c.sharing == Sharing::fetches) &&
         c.asks_for(Algorithm::direct);
}
bool by_fetching(const Case& c) {
  return c.sharing == Sharing::fetches && c.bytes() >= fetched_bytes &&
         c.asks_for(Algorithm::direct);
}
// Below this size the turns of the hosts take longer than sending the data of several ranks over
// one link (two hosts of two ranks on 2 cores in all, milliseconds of direct / carried: 400 KB 14 /
// 16 at 1 Gbit/s, 6 / 13 at 10; 4 MB 113 / 72 and 32 / 33; 16 MB 488 / 286 and 173 / 129).
constexpr std::int64_t carried_bytes = 1 << 20;

bool by_carrying(const Case& c) {
  return c.host_runs && c.views_need_staging && !c.on_gpu && c.bytes() >= carried_bytes &&
         c.asks_for(Algorithm::direct);
}
// MPI's nonblocking all-reduce serves groups in which each member would otherwise send all others a
// message. Up to 32 processes on 2 cores without shared memory, milliseconds of direct /
// MPI_Iallreduce at 64 KiB: 4 processes 0.14 / 0.15, 8 0.7 / 0.36, 16 3.3 / 1.5, 32 8 / 4; 8 at 1
// MiB 8.7 / 6.1, at 16 MiB 76 / 102.
constexpr int mpi_least_members = 8;
constexpr std::int64_t mpi_most_bytes = 1 << 20;

bool by_mpi_all_reduce(const Case& c) {
  return c.by_transport && !c.deterministic && c.algorithm == Algorithm::automatic &&
         c.sharing == Sharing::nothing && c.members >= mpi_least_members &&
         c.bytes() <= mpi_most_bytes;
}
bool by_messages(const Case& c) {
  return c.asks_for(Algorithm::direct);
}
// A small tensor is sent complete in one round rather than in two halves one after the other.
// Adding all elements on both members costs less than the second round.
bool by_swapping(const Case& c) {
  return c.members == 2 && !c.on_gpu && c.bytes() <= ring_bytes && c.asks_for(Algorithm::direct);
}
// `trident bench collectives` on two cores, median microseconds of direct / ring / tree: 2
// processes, 64 KiB 30 / 33 / 45, 1 MiB 1102 / 640 / 1670; 4 processes, 64 KiB 162 / 249 / 136, 64
// MiB 164409 / 376293 / 643037. A tree adds in another order, which deterministic mode, the
// default, does not allow above two members. Where the members' segments differ in size, a ring
// sends other volumes than the plan says.
bool by_ring(const Case& c) {
  if (c.algorithm == Algorithm::ring) return true;
  return c.algorithm == Algorithm::automatic && !c.on_gpu && c.members == 2 &&
         c.bytes() > ring_bytes && c.n % c.members == 0;
}
bool by_tree(const Case& c) {
  return c.algorithm == Algorithm::tree;
}

// The first row that serves a case is taken. The rows for ranks of one host (slots, fetched) name
// the staging memory of direct, although they work without it: an operation then takes the same
// memory on whichever hosts its ranks run, and one plan is right for all of them.
constexpr Collective rows[] = {
    {all_reduce, Algorithm::direct, "queued", by_library, queued::all_reduce,
     queued::all_reduce_staging},
    {all_reduce, Algorithm::direct, "shared", by_memory, shared::all_reduce},
    {all_reduce, Algorithm::direct, "fetched", by_fetching, fetched::all_reduce,
     direct::all_reduce_staging},
    {all_reduce, Algorithm::direct, "slots", by_slots, slots::all_reduce,
     direct::all_reduce_staging},
    {all_reduce, Algorithm::direct, "by_transport", by_mpi_all_reduce, by_transport::all_reduce,
     direct::all_reduce_staging},
    {all_reduce, Algorithm::direct, "swap", by_swapping, swap::all_reduce,
     direct::all_reduce_staging},
    {all_reduce, Algorithm::ring, "ring", by_ring, ring::all_reduce, ring::all_reduce_staging,
     ring::all_reduce_sent},
    {all_reduce, Algorithm::tree, "tree", by_tree, tree::all_reduce, tree::all_reduce_staging,
     tree::all_reduce_sent},
    {all_reduce, Algorithm::direct, "carried", by_carrying, carried::all_reduce,
     direct::all_reduce_staging},
    {all_reduce, Algorithm::direct, "direct", by_messages, direct::all_reduce,
     direct::all_reduce_staging},

    {reduce_scatter, Algorithm::direct, "queued", by_library, queued::reduce_scatter,
     queued::reduce_scatter_staging},
    {reduce_scatter, Algorithm::direct, "shared", by_memory, shared::reduce_scatter},
    {reduce_scatter, Algorithm::direct, "slots", by_slots, slots::reduce_scatter,
     direct::reduce_scatter_staging},
    {reduce_scatter, Algorithm::direct, "direct", by_messages, direct::reduce_scatter,
     direct::reduce_scatter_staging},

    {reduce, Algorithm::direct, "queued", by_library, queued::reduce, queued::reduce_staging},
    {reduce, Algorithm::direct, "shared", by_memory, shared::reduce},
    {reduce, Algorithm::direct, "slots", by_slots, slots::reduce, direct::reduce_staging},
    {reduce, Algorithm::direct, "direct", by_messages, direct::reduce, direct::reduce_staging},

    {all_gather, Algorithm::direct, "queued", by_library, queued::all_gather},
    {all_gather, Algorithm::direct, "shared", by_memory, shared::all_gather},
    {all_gather, Algorithm::direct, "slots", by_slots, slots::all_gather},
    {all_gather, Algorithm::direct, "direct", by_messages, direct::all_gather},

    {broadcast, Algorithm::direct, "queued", by_library, queued::broadcast},
    {broadcast, Algorithm::direct, "shared", by_memory, shared::broadcast},
    {broadcast, Algorithm::direct, "slots", by_slots, slots::broadcast},
    {broadcast, Algorithm::direct, "direct", by_messages, direct::broadcast},

    {gather, Algorithm::direct, "queued", by_library, queued::gather},
    {gather, Algorithm::direct, "shared", by_memory, shared::gather},
    {gather, Algorithm::direct, "slots", by_slots, slots::gather},
    {gather, Algorithm::direct, "direct", by_messages, direct::gather},

    {scatter, Algorithm::direct, "queued", by_library, queued::scatter},
    {scatter, Algorithm::direct, "shared", by_memory, shared::scatter},
    {scatter, Algorithm::direct, "slots", by_slots, slots::scatter},
    {scatter, Algorithm::direct, "direct", by_messages, direct::scatter},

    {all_to_all, Algorithm::direct, "queued", by_library, queued::all_to_all},
    {all_to_all, Algorithm::direct, "shared", by_memory, shared::all_to_all},
    {all_to_all, Algorithm::direct, "slots", by_slots, slots::all_to_all},
    {all_to_all, Algorithm::direct, "direct", by_messages, direct::all_to_all},

    {all_to_all_v, Algorithm::direct, "queued", by_library, queued::all_to_all_v},
    {all_to_all_v, Algorithm::direct, "shared", by_memory, shared::all_to_all_v},
    {all_to_all_v, Algorithm::direct, "slots", by_slots, slots::all_to_all_v},
    {all_to_all_v, Algorithm::direct, "direct", by_messages, direct::all_to_all_v},

    // The hosts carry out a barrier, whatever carries the tensors.
    {barrier, Algorithm::direct, "shared", by_memory, shared::barrier},
    {barrier, Algorithm::direct, "slots", by_slots, slots::barrier},
    {barrier, Algorithm::direct, "direct", by_messages, direct::barrier},
};

// Refuses an algorithm that was requested by name; `automatic` takes no row that would be refused.
void refuse(const Case& c, std::span<const Collective> more,
            const std::function<std::string()>& place) {
  const Collective* const row = row_of(c.operation, c.algorithm, more);
  if (row == nullptr) return;
  if (c.on_gpu) {
    throw RequestError(
        fmt::format("{}: the {} algorithm is the CPU's; on a GPU use direct", place(), row->name));
  }
  if (c.deterministic && c.members > 2) {
    throw RequestError(fmt::format(
        "{}: the {} algorithm does not add in rank order, which deterministic mode needs above 2 "
        "ranks; use direct",
        place(), row->name));
  }
}

const Collective* first(std::span<const Collective> list, const Case& c) {
  for (const Collective& row : list) {
    if (row.operation == c.operation && row.serves(c)) return &row;
  }
  return nullptr;
}

}  // namespace
}  // namespace collective_table

std::span<const Collective> collectives() {
  return collective_table::rows;
}

const Collective& choose(const CollectiveCase& c, std::span<const Collective> more,
                         const std::function<std::string()>& place) {
  using namespace collective_table;
  if (const Collective* const row = first(more, c)) return *row;
  refuse(c, more, place);
  if (const Collective* const row = first(rows, c)) return *row;
  throw Error(fmt::format("{}: no implementation serves it", place()));
}

const Collective* row_of(Operation operation, Algorithm algorithm,
                         std::span<const Collective> more) {
  if (algorithm == Algorithm::automatic || algorithm == Algorithm::direct) return nullptr;
  for (const std::span<const Collective> list : {more, collectives()}) {
    for (const Collective& row : list) {
      if (row.operation == operation && row.algorithm == algorithm) return &row;
    }
  }
  return nullptr;
}

std::size_t staging_bytes(const Collective& row, const CollectiveCase& c) {
  if (row.staging == nullptr) return 0;
  return static_cast<std::size_t>(row.staging(c)) * size_of(c.dtype);
}

}  // namespace trident

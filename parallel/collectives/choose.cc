#include "parallel/collectives/choose.h"

#include <limits>

namespace trident {
namespace {

constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();

struct Row {
  bool shared_memory;
  std::int64_t members, bytes;  // at most
  Algorithm algorithm;
};

// Two cores, `trident bench collectives`, median microseconds of direct / ring / tree.
constexpr Row table[] = {
    {true, any, any, Algorithm::direct},       // 2 members: 64 KiB 9 / 15 / 17,
                                               // 64 MiB 17181 / 22551 / 28038
    {false, 2, 128 << 10, Algorithm::direct},  // 64 KiB 30 / 33 / 45
    {false, 2, any, Algorithm::ring},          // 1 MiB 1102 / 640 / 1670
    // 4 members: 64 KiB 162 / 249 / 136, 64 MiB 164409 / 376293 / 643037. A tree adds in another
    // order, which deterministic mode, the default, does not allow to more than two members.
    {false, any, any, Algorithm::direct},
};

}  // namespace

Algorithm choose_all_reduce(const AllReduceCase& c) {
  for (const Row& row : table) {
    if (row.shared_memory != c.shared_memory || c.members > row.members || c.bytes > row.bytes) {
      continue;
    }
    // Where the members' segments differ in size a ring sends other volumes than the plan says.
    const bool ring = row.algorithm == Algorithm::ring;
    return ring && c.count % c.members != 0 ? Algorithm::direct : row.algorithm;
  }
  return Algorithm::direct;
}

}  // namespace trident

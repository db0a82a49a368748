// Chooses the number of ranks for a start of `trident launch` from the ranks that are available.
// The supervisor calls it before each start. Problems are RequestErrors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/startup/job_config.h"

namespace trident {

// A host and the number of ranks that it takes.
struct Host {
  std::string name;
  std::int64_t slots = 1;
  bool operator==(const Host&) const = default;
};
// Reads a hostfile in Open MPI's form: "name", "name slots=4", "name max_slots=4", comments after
// #. Each further line with the same name adds its slots, or 1. Hosts with 0 slots are left out.
// Throws RequestError, with the line, for anything else, for an impossible host name, and for a
// file without slots.
std::vector<Host> read_hosts(const std::string& path);

// The ranks of a start, and the options that `trident train` needs for them.
struct Ranks {
  std::int64_t count = 1;
  bool adapted = false;            // pass --set size_follows_ranks
  bool pass_ranks_option = false;  // pass --ranks, if one process runs all ranks
};
// Without `least` and `most`, the number of ranks that `request` needs; if its parallel is "auto",
// all available ones within the limits. With `least` or `most`, the largest number within them and
// `available` that the other parallel sizes and the global batch allow; the data-parallel size
// follows it. Throws RequestError if there is no such number.
Ranks choose_ranks(const ConfigRequest& request, std::optional<std::int64_t> least,
                   std::optional<std::int64_t> most, std::optional<std::int64_t> available);

}  // namespace trident

// How many ranks a start of `trident launch` takes, of those that there are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/startup/job_config.h"

namespace trident {

// A host and how many ranks it takes.
struct Host {
  std::string name;
  std::int64_t slots = 1;
  bool operator==(const Host&) const = default;
};
// Of a file in Open MPI's form: "name", "name slots=4", "name max_slots=4", comments after #. A
// name without slots that comes again has one more; one of no slots takes no part. RequestError,
// with the line, for anything else, and for names that hosts can't have.
std::vector<Host> read_hosts(const std::string& path);

// A start's ranks, and what its config says otherwise for them.
struct Ranks {
  std::int64_t count = 1;
  bool adapted = false;  // the override size_follows_ranks goes with them
  bool told = false;     // so does --ranks, where one process has them all
};
// What `request` says; where its parallel is "auto", as many as there are; with `least` or `most`,
// the largest number from there up to `available` that its other parallel sizes and its global
// batch divide: the data-parallel size follows. RequestError where there is none.
Ranks choose_ranks(const ConfigRequest& request, std::optional<std::int64_t> least,
                   std::optional<std::int64_t> most, std::optional<std::int64_t> available);

}  // namespace trident

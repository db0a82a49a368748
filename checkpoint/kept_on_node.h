// Lists the checkpoints in the folder of a run on one node (node_folder.h), according to their
// manifests. Any process may call it; it reads manifests, no other files.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace trident {

// The files of one checkpoint in one node's folder.
struct KeptSet {
  std::string folder;  // below the run's folder
  Manifest manifest;
};

// Why a checkpoint can't be used to resume, by iteration.
using Reasons = std::multimap<std::int64_t, std::string>;

// The contents of the folder, sorted by `KeptSet::folder`.
struct Kept {
  std::vector<KeptSet> sets;
  Reasons unread;                     // unreadable manifests
  Reasons foreign;                    // manifests of a later format
  std::set<std::int64_t> unfinished;  // iterations of interrupted saves, which were never complete
};

// `run`: run_folder_in(). Throws Error if a manifest can't be read at this moment.
Kept kept_in(const std::string& run);
// One line for each set, for comparison with a later listing.
std::vector<std::string> listing_of(const std::vector<KeptSet>& kept);

}  // namespace trident

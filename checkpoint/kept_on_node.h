// What lies in the folder of a run on one node (node_folder.h), as far as manifests say it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace trident {

// What a place has of one checkpoint in one node's folder.
struct KeptSet {
  std::string folder;  // below the run's
  Manifest manifest;
};

// Why something isn't among what could be gone on from, by iteration.
using Reasons = std::multimap<std::int64_t, std::string>;

// What lies here, by folder.
struct Kept {
  std::vector<KeptSet> sets;
  Reasons unread;                     // manifests that are none
  Reasons foreign;                    // of a later format
  std::set<std::int64_t> unfinished;  // whose saves have died: they were never whole
};

// `run`: run_folder_in(). Error where a manifest can't be read now.
Kept kept_in(const std::string& run);
// As lines to compare.
std::vector<std::string> listing_of(const std::vector<KeptSet>& kept);

}  // namespace trident

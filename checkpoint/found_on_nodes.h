// Finds the checkpoints that nodes have kept of a run (node_checkpoint.h) when the run starts:
// which ones are complete, if the parts of all nodes are taken together, and which nodes have which
// part.
//
// A place is a folder checkpoint.local.dir of a host; processes that see the same folder share the
// place. The nodes of the previous start may have been other nodes, or fewer, or numbered
// differently. Only the contents of the folders matter.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/kept_on_node.h"
#include "checkpoint/manifest.h"
#include "checkpoint/starts.h"

namespace trident {

class StartLock;

// A checkpoint on nodes, as this process sees it.
struct NodeSet {
  struct Copy {
    int place = 0;
    std::string folder;  // below `run`: "node-1/iteration-40"
  };

  std::string run;                                 // run_folder_in() of this process
  std::vector<int> place_of;                       // by process; a job of one process has one entry
  int own_place = 0;                               // this process's place
  std::map<std::string, std::vector<Copy>> parts;  // by file: the places that have it undamaged
  std::map<std::string, std::string> texts;        // contents of the other files

  // The place of world rank `rank`. In a job of one process all ranks have the same place.
  int place(int rank) const;
  // The path of a file on this place; "" if this place has no copy of it.
  std::string path_here(const std::string& file) const;
};

struct FoundOnNodes {
  struct One {
    Manifest manifest;
    std::shared_ptr<const NodeSet> set;
  };
  std::vector<One> list;
  // By iteration: why other checkpoints aren't in the list, and those of a later format. Only a
  // later version of the program can tell whether the latter are damaged.
  Reasons left, foreign;
  // The latest checkpoint saved by a start that checkpoint.save doesn't list: its iteration and
  // folder. -1: none.
  std::int64_t unplaced = -1;
  std::string unplaced_in;
  // Held by process 0. While it is held, no other start searches (run/folders/locked_folder.h).
  std::shared_ptr<StartLock> hold;
  // The contents of this process's folder as the search found them, by listing_of(). nullopt if
  // this process didn't search.
  std::optional<std::vector<std::string>> listing;
};

// The collective by which the processes exchange bytes. Each process passes bytes, rank 0 computes
// an answer from all of them, by rank, and every process receives it.
using AskProcesses = std::function<std::string(
    const std::string& own, const std::function<std::string(const std::vector<std::string>&)>&)>;

// Finds the checkpoints of a run that are complete and belong to its present history (starts.h),
// the latest iteration first. All their files are read and verified; the processes of a place share
// this work. Damaged files count as missing. If a process can't read a file at this moment, all
// processes throw Error.
//
// Collective over the job's processes; this one is `rank`. `starts` is called on process 0 alone.
// If its `run` is "", nothing is found.
FoundOnNodes find_on_nodes(const std::string& dir, const std::string& save, int rank,
                           const std::function<Starts()>& starts, const AskProcesses& ask);

}  // namespace trident

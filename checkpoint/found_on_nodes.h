// The checkpoints that nodes have kept of a run (node_checkpoint.h), as a start finds them: which
// are whole, all nodes' parts taken together, and who has which part.
//
// A place is a folder checkpoint.local.dir of a host; processes that see the same one share it. The
// nodes of the start before may be others, or fewer, or have changed their numbers: what counts is
// what lies there.
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

class StartHold;

// One of them, as this process sees it.
struct NodeSet {
  struct Copy {
    int place = 0;
    std::string folder;  // below `run`: "node-1/iteration-40"
  };

  std::string run;                                 // run_folder_in() of this process
  std::vector<int> place_of;                       // by process; a job of one process has one
  int own_place = 0;                               // of this process
  std::map<std::string, std::vector<Copy>> parts;  // by file: who has it whole
  std::map<std::string, std::string> texts;        // the other files' contents

  // Of world rank `rank`, which a job of one process has in that.
  int place(int rank) const;
  // Where a file can be read here; "" where no copy of it is.
  std::string path_here(const std::string& file) const;
};

struct FoundOnNodes {
  struct One {
    Manifest manifest;
    std::shared_ptr<const NodeSet> set;
  };
  std::vector<One> list;
  // By iteration: why others aren't in it, and those of a later format, which only a later program
  // can tell whole from damaged.
  Reasons left, foreign;
  // Those of starts that checkpoint.save doesn't know: the latest one's iteration and folder.
  std::int64_t unplaced = -1;
  std::string unplaced_in;
  // Of process 0: while it is kept nobody else looks (run/folders/locked_folder.h).
  std::shared_ptr<StartHold> hold;
  // What lay in this process's folder: listing_of() then. Nothing where nobody has looked.
  std::optional<std::vector<std::string>> listing;
};

// How processes ask each other: each gives bytes, rank 0 makes the answer for all of what they
// gave, by rank.
using AskProcesses = std::function<std::string(
    const std::string& own, const std::function<std::string(const std::vector<std::string>&)>&)>;

// Those of a run that are whole (every byte of their files is read for that, shared between the
// processes of a place) and have led to where it is now (starts.h), of the latest iteration first.
// Collective over the job's processes, of which this is `rank`; `starts` is asked of process 0
// alone, a run "" finds nothing. What is damaged isn't there; what a process can't read at this
// moment is an Error of all.
FoundOnNodes find_on_nodes(const std::string& dir, const std::string& save, int rank,
                           const std::function<Starts()>& starts, const AskProcesses& ask);

}  // namespace trident

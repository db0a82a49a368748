// Each start of a run, and the iteration after which it went on: checkpoint.save/.trident-starts,
//   {"run": "<id>", "starts": [{"id": "<of the start>", "after": 40, "on_nodes": true}, ...]}
// A checkpoint on nodes tells the start that saved it. Nodes come and go between starts, so one may
// turn up again that was saved later than where the run has gone on since: of a branch that was
// left, which no run goes on from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files/file_system.h"

namespace trident {

struct Starts {
  struct Start {
    std::string id;
    std::int64_t after = 0;
    bool on_nodes = false;  // it has saved there, and the run hasn't ended since
  };
  std::string run;
  std::vector<Start> list;  // in order

  // Whether what start `id` saved after `iteration` has led to where the run is now.
  bool leads_here(const std::string& id, std::int64_t iteration) const;
  bool knows(const std::string& id) const;
  // Whether nodes may have what the run could go on from.
  bool any_on_nodes() const;
};

// None of a run whose file is missing, or another's. Error where it can't be read, or is no such:
// which checkpoints have led here isn't known then.
Starts read_starts(const std::string& save, const std::string& run);
// Of whichever run is listed.
Starts read_starts(const std::string& save);
// Adds one; gives its id. Error where it can't be written.
std::string record_start(FileSystem&, const std::string& save, const std::string& run,
                         std::int64_t after);
// That start `id` has saved on nodes; "": that nodes have nothing of the run any more. Error as
// above.
void record_on_nodes(FileSystem&, const std::string& save, const std::string& run,
                     const std::string& id);

}  // namespace trident

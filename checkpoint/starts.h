// The history of a run: each start, and the iteration after which it resumed. It lies in
// checkpoint.save/.trident-starts,
//   {"run": "<id>", "starts": [{"id": "<of the start>", "after": 40, "on_nodes": true}, ...]}
// A checkpoint on nodes names the start that saved it. Nodes come and go between starts. So a node
// may reappear with a checkpoint that was saved after the iteration from which the run has resumed
// since. It belongs to an abandoned branch, and no run resumes from it.
//
// Only world rank 0 writes the file.
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

  // Whether the checkpoint that start `id` saved after `iteration` is part of the run's present
  // history.
  bool leads_here(const std::string& id, std::int64_t iteration) const;
  bool knows(const std::string& id) const;
  // Whether nodes may have checkpoints from which the run could resume.
  bool any_on_nodes() const;
};

// Returns no starts if the file is missing or belongs to another run. Throws Error if the file
// can't be read or isn't of this form: the run's history is then unknown.
Starts read_starts(const std::string& save, const std::string& run);
// The same for whichever run the file names.
Starts read_starts(const std::string& save);
// Appends a start and returns its id. Throws Error if the file can't be written.
std::string record_start(FileSystem&, const std::string& save, const std::string& run,
                         std::int64_t after);
// Records that start `id` has saved on nodes; "": that nodes have no checkpoints of the run any
// more. Throws Error as above.
void record_on_nodes(FileSystem&, const std::string& save, const std::string& run,
                     const std::string& id);

}  // namespace trident

// Checkpoints on the nodes themselves, in memory or on a disk of the node's own (checkpoint.local):
// quick to write, and gone with the node, so that each rank's part lies on other nodes as well.
//
//   <checkpoint.local.dir>/<run>/node-<k>/iteration-<n>/trident/manifest.json
//                                                      /trident/part-00001-of-00008.safetensors
//
// A part has the slices of one rank, weights among them (save_list.h); ranks that hold the same
// share the work, wherever they are. A node has the parts of its ranks and those that it keeps for
// others, and every node has the manifest, which names all parts: where there is one node the
// folder is a checkpoint as any other. They are written beside and renamed as those are; one is
// there once all nodes have theirs, and the one before goes then.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/context.h"
#include "core/file_system.h"
#include "parallel/nodes.h"
#include "parallel/process_group.h"
#include "training/checkpoint/checkpoint_writer.h"
#include "training/checkpoint/save_list.h"

namespace trident {

// What one rank does for the nodes' checkpoints.
struct NodeRole {
  int node = 0;                 // its number: nodes are counted by their first ranks
  bool leads = false;           // makes the node's folder: its first rank
  std::vector<int> ranks;       // of the node
  std::vector<int> copied_to;   // ranks, each of another node, that keep a copy of this one's part
  std::vector<int> copies_of;   // ranks of whose parts this one keeps a copy
  std::vector<int> node_keeps;  // ranks of other nodes of whose parts this node keeps copies
};

// `replicas` copies on the next nodes, or as many as there are other nodes, spread over the ranks
// there.
NodeRole node_role(const Nodes&, int rank, std::int64_t replicas);

struct NodePlace {
  FileSystem* files = nullptr;
  std::string run;   // folder of the run: <dir>/<run>
  std::string save;  // what tells its checkpoint.save from others (save_identity())
  NodeRole role;

  std::string node() const;  // this node's folder there
};

// The path and, on this host, the folder itself.
std::string save_identity(const std::string& save);

// Collective over `group`, of all ranks, whose waits should be patient. `list` has slices alone;
// rank 0's `info` counts. `context` is one of the host. Gives why it could not be written, the same
// on all ranks, with what was written removed; "" where it is there.
std::string write_on_nodes(Context& context, const ProcessGroup& group, const SaveList& list,
                           const NodePlace& place, const CheckpointInfo& info,
                           const EachPortion& each);

// Removes a run's checkpoints of other iterations than `stays` from this node's folder, and older
// ones from others that are here. What is gone already is no failure.
void keep_on_node(const NodePlace& place, std::int64_t stays);

// Before a run goes on after iteration `last` (-1: it is new): makes this node's folder, which only
// its owner may enter; removes what was saved later, what dead saves have left, and what other runs
// have left here that saved to the same folder.
void begin_on_node(const NodePlace& place, std::int64_t last);

// For whom no other process writes there: what dead saves, and dead starts, have left in the folder
// of a run, as far as it can be removed.
void clear_unfinished_on_node(FileSystem&, const std::string& run);

// Nothing of the run stays on this node.
void leave_node(const NodePlace& place);

}  // namespace trident

// The folder of a run on one node (node_checkpoint.h): whose parts lie there, what is made and what
// goes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "parallel/nodes.h"

namespace trident {

// What was sent to a rank for its start lies in <run>/fetched-<rank> (gather_from_nodes.h).
inline constexpr const char* fetched_prefix = "fetched-";

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
  std::string run;   // folder of the run: run_folder_in()
  std::string save;  // what tells its checkpoint.save from others (save_identity())
  NodeRole role;

  std::string node() const;  // this node's folder there
};

// The path and, on this host, the folder itself.
std::string save_identity(const std::string& save);

// Of the folders in `dir` that bear the run's name the one that was made for this checkpoint.save,
// wherever that lay then; a copied run has another than the one that it was copied from. Where
// there is none, the name of a new one: <dir>/<run>-<hash of the path of checkpoint.save>.
std::string run_folder_in(const std::string& dir, const std::string& run, const std::string& save);

// Makes this node's folder, and that of the run, as only their owner may enter them, where they
// aren't there, and says in it where the run saves.
void make_node_folder(const NodePlace& place);

// Removes a run's checkpoints of other iterations than `stays` from this node's folder, and older
// ones from others that are here. What is gone already is no failure.
void keep_on_node(const NodePlace& place, std::int64_t stays);

// Before a run goes on after iteration `last` (-1: it is new): removes what was saved later, what
// dead saves have left, and what other runs have left here that saved to the same folder.
void clear_node(const NodePlace& place, std::int64_t last);

// What is here of runs whose checkpoint.save had this path but was another folder, which may have
// been removed, or moved.
std::vector<std::string> left_by_others(const NodePlace& place);

// For whom no other process writes there: what dead saves, and dead starts, have left in the folder
// of a run, as far as it can be removed.
void clear_unfinished_on_node(FileSystem&, const std::string& run);

// Nothing of the run stays on this node.
void leave_node(const NodePlace& place);

}  // namespace trident

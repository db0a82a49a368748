// The folder of a run on one node (node_checkpoint.h): which ranks' parts it holds, and how it is
// created and cleaned.
//
// All functions work on this node only and are not collective. Several ranks of a node may clean
// the same folder at once. Functions that take a FileSystem or a NodePlace throw Error if a file
// operation fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "parallel/nodes.h"

namespace trident {

// Parts that a rank received for its start lie in <run>/fetched-<rank> (gather_from_nodes.h).
inline constexpr const char* fetched_prefix = "fetched-";

// The role of one rank in saving to nodes.
struct NodeRole {
  int node = 0;                 // its number: nodes are ordered by their first ranks
  bool leads = false;           // first rank of the node, which creates its folder
  std::vector<int> ranks;       // ranks of the node
  std::vector<int> copied_to;   // ranks, one a node, that keep a copy of this rank's part
  std::vector<int> copies_of;   // ranks whose parts this rank keeps a copy of
  std::vector<int> node_keeps;  // ranks of other nodes whose parts this node keeps copies of
};

// Places `replicas` copies on the next nodes, at most one on each other node, spread over the ranks
// there.
NodeRole node_role(const Nodes&, int rank, std::int64_t replicas);

struct NodePlace {
  FileSystem* files = nullptr;
  std::string run;   // folder of the run: run_folder_in()
  std::string save;  // identifies its checkpoint.save (save_identity())
  NodeRole role;

  std::string node() const;  // this node's folder in `run`
};

// Identifies a folder by its path and, on this host, by its device and inode numbers.
std::string save_identity(const std::string& save);

// The run's folder in `dir`: the folder with the run's name that was created for this
// checkpoint.save, even if checkpoint.save has been moved since. The copy of a run has a folder of
// its own. If there is none, returns the name of a new one: <dir>/<run>-<hash of the path of
// checkpoint.save>.
std::string run_folder_in(const std::string& dir, const std::string& run, const std::string& save);

// Creates the folders of the run and of this node if they are missing. Only their owner may enter
// them. Writes `place.save` into the node's folder.
void make_node_folder(const NodePlace& place);

// Removes all iterations but `stays` from this node's folder, and earlier iterations from the
// folders of other nodes that are here. A folder that is already gone is no failure.
void keep_on_node(const NodePlace& place, std::int64_t stays);

// Called before a run resumes after iteration `last` (-1: a new run). Removes later iterations, the
// remains of interrupted saves, and folders here of other runs that saved to the same
// checkpoint.save.
void clear_node(const NodePlace& place, std::int64_t last);

// The folders here of runs whose checkpoint.save had this path but was another folder. That folder
// may have been removed or moved.
std::vector<std::string> left_by_others(const NodePlace& place);

// Removes the remains of interrupted saves and starts from the folder of a run, as far as possible.
// No other process may write there meanwhile.
void clear_unfinished_on_node(FileSystem&, const std::string& run);

// Removes the run's folder from this node.
void leave_node(const NodePlace& place);

}  // namespace trident

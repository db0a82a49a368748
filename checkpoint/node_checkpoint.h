// Checkpoints on the nodes themselves, in memory or on a node's own disk (checkpoint.local). They
// are fast to write but are lost with the node, so other nodes hold copies of each rank's part.
//
//   <checkpoint.local.dir>/<run>-<hash>/node-<k>/iteration-<n>/trident/manifest.json
//                                                      /trident/part-00001-of-00008.safetensors
//
// A part holds the slices of one rank, weights included (save_list.h). Ranks that hold the same
// elements share the work, on whichever nodes they are. A node has the parts of its own ranks and
// the copies that it keeps for others. Every node has the manifest, which names all parts; with a
// single node the folder is an ordinary checkpoint. As with other checkpoints, the folder has a
// temporary name while it is written. The checkpoint exists once every node has renamed its folder.
// The previous one is removed afterwards.
#pragma once

#include <string>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/node_folder.h"
#include "checkpoint/save_list.h"
#include "core/context.h"
#include "parallel/process_group.h"

namespace trident {

// Collective over `group`, which has all ranks and should be a group without time-out. `context` is
// a host context. `list` must contain slices only (SaveList::Weights::slices). Only rank 0's `info`
// is used. Returns "" if the checkpoint was written. Otherwise it removes the files and returns the
// reason, the same on all ranks.
std::string write_on_nodes(Context& context, const ProcessGroup& group, const SaveList& list,
                           const NodePlace& place, const CheckpointInfo& info,
                           const EachPortion& each);

}  // namespace trident

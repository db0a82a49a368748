// Checkpoints on the nodes themselves, in memory or on a disk of the node's own (checkpoint.local):
// quick to write, and gone with the node, so that each rank's part lies on other nodes as well.
//
//   <checkpoint.local.dir>/<run>-<hash>/node-<k>/iteration-<n>/trident/manifest.json
//                                                      /trident/part-00001-of-00008.safetensors
//
// A part has the slices of one rank, weights among them (save_list.h); ranks that hold the same
// share the work, wherever they are. A node has the parts of its ranks and those that it keeps for
// others, and every node has the manifest, which names all parts: where there is one node the
// folder is a checkpoint as any other. They are written beside and renamed as those are; one is
// there once all nodes have theirs, and the one before goes then.
#pragma once

#include <string>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/node_folder.h"
#include "checkpoint/save_list.h"
#include "core/context.h"
#include "parallel/process_group.h"

namespace trident {

// Collective over `group`, of all ranks, whose waits should be patient. `list` has slices alone;
// rank 0's `info` counts. `context` is one of the host. Gives why it could not be written, the same
// on all ranks, with what was written removed; "" where it is there.
std::string write_on_nodes(Context& context, const ProcessGroup& group, const SaveList& list,
                           const NodePlace& place, const CheckpointInfo& info,
                           const EachPortion& each);

}  // namespace trident

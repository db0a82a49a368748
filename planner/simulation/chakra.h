// Exports a simulated step as execution traces of MLCommons Chakra (schema/protobuf/et_def.proto of
// github.com/mlcommons/chakra). ASTRA-sim runs these on its own network models. One process writes
// the files of all ranks.
#pragma once

#include <cstdint>
#include <string>

#include "models/architecture.h"
#include "planner/machine/machine.h"
#include "settings/config.h"

namespace trident {

struct ChakraFiles {
  std::int64_t ranks = 0, nodes = 0, bytes = 0;  // totals
};

// Writes PREFIX.RANK.et for every rank of the config, and PREFIX.groups.json with the members of
// the process groups (ASTRA-sim's comm-group-configuration).
//
// A file has a GlobalMetadata and then Nodes, each after its length as a varint. The kernels
// between two communication operations are one COMP_NODE, with its FLOPs (num_ops), bytes
// (tensor_size) and its time on the machine (duration_micros). A collective has comm_type,
// comm_size (bytes of the tensor that is reduced, or of the member's own part that is gathered) and
// pg_name. A message is a COMM_SEND_NODE and, at the other rank, a COMM_RECV_NODE with the same
// comm_tag.
//
// A node depends on the previous node of the compute stream. The nodes after the last action wait
// for the collectives that overlap compute. Throws RequestError where a file can't be written.
ChakraFiles write_chakra(const Config&, const Architecture&, const Machine&,
                         const std::string& prefix);

}  // namespace trident

// A simulated step as execution traces of MLCommons Chakra (schema/protobuf/et_def.proto of
// github.com/mlcommons/chakra), which ASTRA-sim runs on networks of its own.
#pragma once

#include <cstdint>
#include <string>

#include "models/architecture.h"
#include "planner/machine/machine.h"
#include "settings/config.h"

namespace trident {

struct ChakraFiles {
  std::int64_t ranks = 0, nodes = 0, bytes = 0;  // of all of them
};

// Writes PREFIX.RANK.et for every rank of the config, and PREFIX.groups.json, the members of the
// process groups (ASTRA-sim's comm-group-configuration).
//
// A file has a GlobalMetadata and then Nodes, each after its length as a varint. Kernels between
// two operations of groups are one COMP_NODE, with its FLOPs (num_ops), bytes (tensor_size) and the
// time that the machine takes for it (duration_micros). A collective has comm_type, comm_size
// (bytes of the tensor that is reduced, or of a member's own part that is gathered) and pg_name; a
// message is a COMM_SEND_NODE and, at the other rank, a COMM_RECV_NODE with the same comm_tag. Work
// of a stream depends on what came before it there; collectives beside compute are waited for by
// what comes after the last action. RequestError where a file can't be written.
ChakraFiles write_chakra(const Config&, const Architecture&, const Machine&,
                         const std::string& prefix);

}  // namespace trident

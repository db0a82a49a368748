// The process groups of one rank in a 3D-parallel job.
#pragma once

#include <string>
#include <vector>

#include "parallel/nodes.h"
#include "parallel/process_group.h"
#include "parallel/rank_grid.h"

namespace trident {

struct Topology {
  RankGrid grid;
  Coordinates at;
  ProcessGroup world, tensor, pipeline, data;
  // The ranks of this (data, tensor) that hold the first and the last stage, for tied weights.
  // Undefined on others; one rank where it holds both.
  ProcessGroup embedding;
  ProcessGroup node;                  // ranks that share this rank's node
  ProcessGroup across_nodes;          // ranks at this rank's place on their nodes
  std::vector<std::string> warnings;  // e.g. tensor parallelism crosses nodes
};

// The pipeline ranks that hold the first and the last stage, as the schedule places them.
struct StageEnds {
  int first = 0, last = -1;  // -1: the last rank
};

// Throws RequestError if the grid does not fill the world.
Topology make_topology(const ProcessGroup& world, const RankGrid& grid, const Nodes& nodes,
                       StageEnds ends = {});

}  // namespace trident

// The process groups of one rank in a 3D-parallel job.
#pragma once

#include <string>
#include <vector>

#include "parallel/process_group.h"
#include "parallel/rank_grid.h"

namespace trident {

struct Topology {
  RankGrid grid;
  Coordinates at;
  ProcessGroup world, tensor, pipeline, data;
  // First and last pipeline stage of this (data, tensor), for tied weights. Undefined on ranks in
  // between; one rank where pipeline is 1.
  ProcessGroup embedding;
  ProcessGroup node;                  // ranks that share this rank's node
  ProcessGroup across_nodes;          // ranks at this rank's place on every node
  std::vector<std::string> warnings;  // e.g. tensor parallelism crosses nodes

  bool is_first_stage() const { return at.pipeline == 0; }
  bool is_last_stage() const { return at.pipeline == pipeline.size() - 1; }
};

// Throws RequestError if the grid does not fill the world.
Topology make_topology(const ProcessGroup& world, const RankGrid& grid, int ranks_per_node);

}  // namespace trident

// Meshes for tests.
#pragma once

#include <string>

#include "parallel/mesh.h"
#include "settings/config.h"

namespace trident::testing {

// The same mesh as the config makes.
inline Mesh mesh(int data, int tensor, int pipeline, const std::string& order = "tp-dp-pp") {
  return Mesh(ParallelConfig{.data_parallel_size = data,
                             .tensor_model_parallel_size = tensor,
                             .pipeline_model_parallel_size = pipeline}
                  .axes(),
              order);
}

// A fourth axis: complete replicas of everything else, which get other samples and average
// gradients.
inline MeshAxis replica_axis(int size) {
  return {.name = "rp",
          .title = "replica",
          .size = size,
          .groups = {Group::batch, Group::replicas, Group::loss}};
}

}  // namespace trident::testing

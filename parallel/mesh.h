// Pure arithmetic from axes (core/axes.h) to coordinates and groups; no process needed. Called what
// torchtitan and jax call it; Megatron-LM's parallel_state has the same groups.
// Every function throws RequestError for an argument out of range, naming it and the range.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/axes.h"

namespace trident {

// Where the schedule puts the first and the last stage: places in the pipeline group.
struct StageEnds {
  int first = 0, last = -1;  // -1: the last place
};

// The ranks 0 … world_size() - 1 as a reshape to the axes, the first named one of `order` varying
// fastest ("tp-dp-pp", Megatron-LM's default).
class Mesh {
 public:
  static constexpr std::int64_t max_world_size = 1 << 24;

  // An empty order is that of the axes.
  explicit Mesh(std::vector<MeshAxis> axes, const std::string& order = {});

  int world_size() const { return world_; }
  const std::vector<MeshAxis>& axes() const { return axes_; }
  // Of a rank, by axis.
  std::vector<int> coordinates(int rank) const;
  int rank(const std::vector<int>& coordinates) const;

  // Ranks of each such group, and a rank's place in its own. Of several axes the first varies
  // fastest, whatever the order of ranks is.
  int size(Group group) const;
  int place(int rank, Group group) const;
  // World ranks that differ from `rank` only along the group's axes, by place.
  std::vector<int> group(int rank, Group group) const;
  // The rank at another place of `rank`'s group.
  int moved(int rank, Group group, int place) const;
  // The ranks that a micro-batch of `rank`'s passes one after the other, and those at this place of
  // their pipelines, rising.
  std::vector<int> pipeline(int rank) const;
  std::vector<int> same_stage(int place) const;
  // A rank's place in its pipeline, for people: "pp 2".
  std::string pipeline_place(int rank) const;
  // The ranks of `rank`'s pipeline that hold the first and the last stage; one where they are the
  // same.
  std::vector<int> embedding_group(int rank, StageEnds ends = {}) const;

 private:
  std::vector<MeshAxis> axes_;
  std::vector<int> strides_;  // by axis
  int world_ = 1;
};

}  // namespace trident

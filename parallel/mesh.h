// Maps ranks to coordinates along the axes (core/axes.h) and to groups. It is pure arithmetic and
// needs no process. torchtitan and JAX call this a mesh, too; Megatron-LM's parallel_state has the
// same groups.
//
// Any thread may call it. Every function throws RequestError for an argument out of range; the
// error names the argument and the range.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/axes.h"

namespace trident {

// The places in the pipeline group where the schedule puts the first and the last stage.
struct StageEnds {
  int first = 0, last = -1;  // -1: the last place
};

// The ranks 0 … world_size() - 1, reshaped to the axes. The first axis named in `order` varies
// fastest ("tp-dp-pp", Megatron-LM's default).
class Mesh {
 public:
  static constexpr std::int64_t max_world_size = 1 << 24;

  // An empty order means the order of `axes`.
  explicit Mesh(std::vector<MeshAxis> axes, const std::string& order = {});

  int world_size() const { return world_; }
  const std::vector<MeshAxis>& axes() const { return axes_; }
  // The coordinates of a rank, by axis, and the rank that has the coordinates of the axes that are
  // not folded.
  std::vector<int> coordinates(int rank) const;
  int rank(const std::vector<int>& coordinates) const;

  // The number of ranks in each group of this kind, and a rank's place in its own group. In a group
  // over several axes the first axis varies fastest, whatever the order of ranks is. The axes of a
  // group are all folded, or none is.
  int size(Group group) const;
  int place(int rank, Group group) const;
  // The world ranks that differ from `rank` only along the group's axes, by place.
  std::vector<int> group(int rank, Group group) const;
  // The rank at another place of `rank`'s group.
  int moved(int rank, Group group, int place) const;
  // The ranks that a micro-batch of `rank` passes one after the other, and the ranks at this place
  // of their pipelines, ascending.
  std::vector<int> pipeline(int rank) const;
  std::vector<int> same_stage(int place) const;
  // A rank's place in its pipeline, for messages: "pp 2".
  std::string pipeline_place(int rank) const;
  // The ranks of `rank`'s pipeline that hold the first and the last stage; one rank where both
  // stages are the same.
  std::vector<int> embedding_group(int rank, StageEnds ends = {}) const;

 private:
  // The number of a rank among those of its stage, in rank order, and the rank of a number in the
  // stage of `rank`.
  int in_stage(int rank) const;
  int from_stage(int number, int rank) const;

  // The places of an axis that differ within a group: `count`, from rank to rank `stride` apart.
  struct Places {
    int stride = 1, count = 1;
  };
  Places places_of(std::size_t axis, Group group) const;

  std::vector<MeshAxis> axes_;
  std::vector<int> strides_;        // by axis: of ranks, of a folded axis of numbers in the stage
  std::vector<std::size_t> stage_;  // the axes that number a stage's ranks, fastest first
  int world_ = 1;
};

}  // namespace trident

// The placement of a parameter's elements, or of any state of a parameter: the part of the global
// tensor that a rank holds, and its consequences. Initial values, optimizers, norms, the Hugging
// Face maps and checkpoints all take the answer from here.
//
// It is pure arithmetic. shard() throws Error.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/axes.h"
#include "core/tensor.h"

namespace trident {

// Elements [row, row + rows) x [column, column + columns) of a tensor that is viewed as a matrix:
// its columns are the last dimension, its rows all others in row-major order. A vector counts as
// one column. So a rectangular part of a tensor of more than two dimensions is a list of slices.
struct TensorSlice {
  std::int64_t row = 0, column = 0, rows = 0, columns = 0;
  bool operator==(const TensorSlice&) const = default;
};

// A slice of the global tensor in a rank's flat buffer. Its first element lies at `local`, and each
// row begins `stride` elements after the row before.
struct LocalSlice {
  TensorSlice slice;
  std::int64_t local = 0, stride = 0;
  bool operator==(const LocalSlice&) const = default;
};

// Calls visit(local, global, count) for ranges of elements that are contiguous both in the flat
// buffer and in the full tensor of `columns` columns. Where possible, one call covers the entire
// slice.
template <class Visit>
void each_range(const LocalSlice& held, std::int64_t columns, const Visit& visit) {
  const TensorSlice& slice = held.slice;
  const bool at_once = slice.columns == columns && held.stride == columns;
  const std::int64_t rows = at_once ? 1 : slice.rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    visit(held.local + row * held.stride, (slice.row + row) * columns + slice.column,
          at_once ? slice.rows * columns : slice.columns);
  }
}

// The two groups of ranks that see different samples and hold a parameter together. The ranks of
// `shard` share its ZeRO states; the ranks of `replicas` hold the same shard once more. The
// gradient is summed over both.
struct DataGroups {
  Group shard = Group::shard, replicas = Group::replicas;
  static DataGroups of_expert() { return {Group::expert_shard, Group::expert_replicas}; }
  bool are_of_expert() const { return shard == Group::expert_shard; }
  bool operator==(const DataGroups&) const = default;
};

// The number of a rank among the ranks that hold the same elements. Replica 0, the primary one,
// counts in norms; file writing is divided over all replicas. A tied weight's copy does neither:
// its index is -1.
struct Holder {
  int index = 0, count = 1;

  bool is_primary() const { return index == 0; }
  // The holder where each replica is itself held by `size` ranks, of which this rank is at `place`.
  Holder times(int place, int size) const {
    return {index < 0 ? index : index * size + place, count * size};
  }
};

// The placement of a tensor of up to Shape::max_rank dimensions. A list of groups (core/axes.h)
// shards each dimension: the first group divides its blocks, the next one divides what a rank of
// the first holds, and so on. A group shards at most one dimension. (DTensor of PyTorch has the
// same idea, Shard(dim) for each axis of a mesh.)
struct Placement {
  // A range of a dimension. It may run past the global extent. That part is padding: it is always
  // zero and belongs to no slice.
  struct Shard {
    std::int64_t begin = 0, count = 0;
    bool operator==(const Shard&) const = default;
  };
  struct Sharding {
    std::vector<Group> groups;  // in the order in which they divide; none: replicated
    std::vector<Shard> shards;  // held by this rank, in local order; none: the full dimension
    bool operator==(const Sharding&) const = default;
  };

  Shape global;                         // real extents, without padding
  Sharding shardings[Shape::max_rank];  // by dimension
  // Each rank of these groups has a partial gradient, which is to be summed over the group before
  // use (replicated parameters under sequence parallelism).
  std::vector<Group> partial = {};
  DataGroups data = {};
  // `tied`: the parameter is on the first and the last stage, and its gradient is summed over the
  // embedding group. `copy`: this is the last stage's copy.
  bool tied = false, copy = false;

  static Placement replicated(Shape global) { return {.global = global}; }
  // One group that shards a dimension, with this rank's number in it and its size.
  struct Share {
    Group group;
    int rank = 0, size = 1;
  };
  // Shards a dimension that is a stack of blocks (query, key, value), padding at its end included.
  // The first group splits each block into equal parts, of which this rank holds one; the next
  // group splits that part, and so on. Throws Error where the sizes do not divide a block, or where
  // the dimension or a group shards already.
  Placement& shard(int dim, const std::vector<Share>& shares,
                   const std::vector<std::int64_t>& blocks);
  Placement& shard(int dim, Group group, const std::vector<std::int64_t>& blocks, int rank,
                   int size) {
    return shard(dim, {{group, rank, size}}, blocks);
  }

  bool is_sharded_along(int dim) const { return !shardings[dim].shards.empty(); }
  bool is_sharded_by(Group group) const;
  bool is_sharded() const;
  // The groups that shard it, by dimension and in their order.
  std::vector<Group> sharded_by() const;
  // The groups that may shard it.
  std::span<const Group> possible_groups() const {
    if (data.are_of_expert()) return expert_sharding_groups;
    return sharding_groups;
  }
  // Whether ranks that differ along the group have the same part.
  bool is_same_over(Group group) const;
  // The placement of one value for each index of a dimension.
  Placement along(int dim) const;
  Shape local() const;
  std::int64_t numel() const { return local().numel(); }  // of the local part, with padding

  // Whether the rank at the places place_of(group) is the primary replica among the ranks that hold
  // the same part. The primary replica counts the part in norms and saves it.
  template <class PlaceOf>
  bool is_primary(const PlaceOf& place_of) const {
    if (copy) return false;
    for (const Group group : possible_groups()) {
      if (!is_sharded_by(group) && place_of(group) != 0) return false;
    }
    return true;
  }
  // The number of the rank at the places place_of(group), each of size_of(group), among the ranks
  // that hold this part. Only the groups that may shard a parameter are counted.
  template <class PlaceOf, class SizeOf>
  Holder holder(const PlaceOf& place_of, const SizeOf& size_of) const {
    Holder holder{.index = copy ? -1 : 0};
    for (const Group group : possible_groups()) {
      if (!is_sharded_by(group)) holder = holder.times(place_of(group), size_of(group));
    }
    return holder;
  }

  // The slices of elements [begin, begin + count) of the local flat buffer, without padding.
  std::vector<LocalSlice> slices(std::int64_t begin, std::int64_t count) const;
  std::vector<LocalSlice> slices() const { return slices(0, numel()); }
  // The parts of a global slice that this rank holds.
  std::vector<LocalSlice> local_slices_of(const TensorSlice& slice) const;
};

}  // namespace trident

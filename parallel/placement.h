// Where the elements of a parameter, or of any state of it, lie: which part of the global tensor a
// rank holds, and what follows from that. One answer for initial values, optimizers, norms, the
// Hugging Face maps and checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/axes.h"
#include "core/tensor.h"

namespace trident {

// Elements [row, row + rows) x [column, column + columns) of a tensor of two dimensions. A vector
// is a column.
struct TensorSlice {
  std::int64_t row = 0, column = 0, rows = 0, columns = 0;
  bool operator==(const TensorSlice&) const = default;
};

// A box of the global tensor in a rank's flat buffer: its first element at `local`, each row
// `stride` elements after the one before.
struct LocalSlice {
  TensorSlice slice;
  std::int64_t local = 0, stride = 0;
  bool operator==(const LocalSlice&) const = default;
};

// Calls visit(local, whole, count) for stretches of elements that follow each other in the flat
// buffer and in a whole tensor of `columns` columns alike: all of the box at once where it can be.
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

// Who among the ranks that see different samples holds what of a parameter: `shard` shares its ZeRO
// states, and `replicas` holds the same shard once more. Its gradient is summed over both.
struct DataGroups {
  Group shard = Group::shard, replicas = Group::replicas;
  bool operator==(const DataGroups&) const = default;
};

// Which of the ranks that hold the same elements one is. The first speaks for all; what takes long
// they share. A tied weight's copy does neither: its index is -1.
struct Holder {
  int index = 0, count = 1;

  bool is_primary() const { return index == 0; }
  // They are `size` times as many, of which this one is at `place`.
  Holder times(int place, int size) const {
    return {index < 0 ? index : index * size + place, count * size};
  }
};

// Of a tensor of one or two dimensions. Each may be cut by one group (core/axes.h): an expert's
// down-projection by two.
struct Placement {
  // A range of a dimension. It may run past the global extent: that part is padding, always zero,
  // and in no box.
  struct Shard {
    std::int64_t begin = 0, count = 0;
    bool operator==(const Shard&) const = default;
  };
  struct Sharding {
    Group group;
    std::vector<Shard> shards;  // that this rank holds, in local order
  };

  Shape global;                          // real extents, without padding
  std::optional<Sharding> shardings[2];  // by dimension; nothing where it is whole
  // Each rank of these groups has a part of the gradient, to be summed over the group before use
  // (whole parameters under sequence parallelism).
  std::vector<Group> partial = {};
  DataGroups data = {};
  // On the first and the last stage; the gradient is summed over the embedding group. The last
  // stage's is the copy.
  bool tied = false, copy = false;

  static Placement replicated(Shape global) { return {.global = global}; }
  // Sharding along a dimension that is a stack of blocks (query, key, value), padding at its end
  // included: each into `size` equal parts, of which this rank, `rank` of `group`, holds one. Error
  // where they don't divide a block, or where dimension or group cut already.
  Placement& shard(int dim, Group group, const std::vector<std::int64_t>& blocks, int rank,
                   int size);

  bool is_sharded_along(int dim) const { return shardings[dim].has_value(); }
  bool is_sharded_by(Group group) const;
  bool is_sharded() const { return is_sharded_along(0) || is_sharded_along(1); }
  // Ranks that differ along the group have the same part.
  bool is_same_over(Group group) const;
  // One value for each row (dimension 0) or column (1): where these lie.
  Placement along(int dim) const;
  Shape local() const;
  std::int64_t numel() const { return local().numel(); }  // of the local part, with padding

  // Of ranks that hold the same, one speaks for all: counts it in norms, saves it. Whether the one
  // at these places, place_of(group), does.
  template <class PlaceOf>
  bool is_primary(const PlaceOf& place_of) const {
    if (copy) return false;
    for (const Group group : sharding_groups) {
      if (!is_sharded_by(group) && place_of(group) != 0) return false;
    }
    return true;
  }
  // As far as the groups that may cut it go: which of those that hold this part the one at these
  // places, place_of(group) of size_of(group), is.
  template <class PlaceOf, class SizeOf>
  Holder holder(const PlaceOf& place_of, const SizeOf& size_of) const {
    Holder holder{.index = copy ? -1 : 0};
    for (const Group group : sharding_groups) {
      if (!is_sharded_by(group)) holder = holder.times(place_of(group), size_of(group));
    }
    return holder;
  }

  // The boxes of elements [begin, begin + count) of the local flat buffer; padding is in none.
  std::vector<LocalSlice> slices(std::int64_t begin, std::int64_t count) const;
  std::vector<LocalSlice> slices() const { return slices(0, numel()); }
  // What this rank holds of a box.
  std::vector<LocalSlice> local_slices_of(const TensorSlice& slice) const;
};

}  // namespace trident

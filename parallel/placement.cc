#include "parallel/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace trident {
namespace {

using Shard = Placement::Shard;

// A vector counts as one column.
std::int64_t extent(const Shape& shape, int dim) {
  return dim < shape.rank() ? shape.dim(dim) : 1;
}

std::vector<Shard> shards_of(const Placement& placement, int dim) {
  if (placement.shardings[dim]) return placement.shardings[dim]->shards;
  return {{0, extent(placement.global, dim)}};
}

std::int64_t total(const std::vector<Shard>& shards) {
  std::int64_t count = 0;
  for (const Shard& shard : shards) count += shard.count;
  return count;
}

// The ranges of a dimension that local indices [begin, end) hold, shard by shard, without padding.
struct Range {
  std::int64_t local, global, count;
};
std::vector<Range> ranges(const std::vector<Shard>& shards, std::int64_t begin, std::int64_t end,
                          std::int64_t extent) {
  std::vector<Range> list;
  std::int64_t at = 0;
  for (const Shard& shard : shards) {
    const std::int64_t real = std::clamp<std::int64_t>(extent - shard.begin, 0, shard.count);
    const std::int64_t first = std::max(begin, at), last = std::min(end, at + real);
    if (first < last) list.push_back({first, shard.begin + first - at, last - first});
    at += shard.count;
  }
  return list;
}

}  // namespace

Placement& Placement::shard(int dim, Group group, const std::vector<std::int64_t>& blocks, int rank,
                            int size) {
  if (dim >= global.rank() || is_sharded_along(dim) || is_sharded_by(group)) {
    throw Error(fmt::format(
        "placement: dimension {} of {} is missing, or it or the group is sharded already", dim,
        global.to_string()));
  }
  std::vector<Shard> shards;
  std::int64_t begin = 0;
  for (const std::int64_t block : blocks) {
    if (block % size != 0) {
      throw Error(fmt::format("placement: {} does not divide {} of dimension {} of {}", size, block,
                              dim, global.to_string()));
    }
    shards.push_back({begin + rank * (block / size), block / size});
    begin += block;
  }
  if (size > 1 || begin != global.dim(dim)) shardings[dim] = Sharding{group, std::move(shards)};
  return *this;
}

bool Placement::is_sharded_by(Group group) const {
  return std::any_of(std::begin(shardings), std::end(shardings),
                     [&](const auto& sharding) { return sharding && sharding->group == group; });
}

bool Placement::is_same_over(Group group) const {
  const auto& cutting = sharding_groups;
  return group == data.shard || group == data.replicas ||
         (std::find(std::begin(cutting), std::end(cutting), group) != std::end(cutting) &&
          !is_sharded_by(group));
}

Shape Placement::local() const {
  const auto held = [&](int dim) { return total(shards_of(*this, dim)); };
  return global.rank() == 1 ? Shape{held(0)} : Shape{held(0), held(1)};
}

Placement Placement::along(int dim) const {
  Placement placement = replicated({extent(global, dim)});
  placement.shardings[0] = shardings[dim];
  placement.data = data;
  placement.tied = tied;
  placement.copy = copy;
  return placement;
}

std::vector<LocalSlice> Placement::slices(std::int64_t begin, std::int64_t count) const {
  const auto rows = shards_of(*this, 0), columns = shards_of(*this, 1);
  const std::int64_t width = total(columns), end = begin + count;
  std::vector<LocalSlice> list;
  // Adds local rows [first, last) and, of each, columns [left, right).
  const auto add = [&](std::int64_t first, std::int64_t last, std::int64_t left,
                       std::int64_t right) {
    for (const Range& row : ranges(rows, first, last, extent(global, 0))) {
      for (const Range& column : ranges(columns, left, right, extent(global, 1))) {
        list.push_back({{row.global, column.global, row.count, column.count},
                        row.local * width + column.local,
                        width});
      }
    }
  };
  if (count <= 0) return list;
  // The range consists of the end of a row, complete rows, and the beginning of a row.
  const std::int64_t whole_begin = (begin + width - 1) / width, whole_end = end / width;
  if (whole_begin > whole_end) {
    add(whole_end, whole_begin, begin % width, end % width);
    return list;
  }
  if (begin % width != 0) add(whole_begin - 1, whole_begin, begin % width, width);
  add(whole_begin, whole_end, 0, width);
  if (end % width != 0) add(whole_end, whole_end + 1, 0, end % width);
  return list;
}

std::vector<LocalSlice> Placement::local_slices_of(const TensorSlice& slice) const {
  std::vector<LocalSlice> list;
  for (LocalSlice held : slices()) {
    const TensorSlice own = held.slice;
    TensorSlice& meet = held.slice;
    meet.row = std::max(own.row, slice.row);
    meet.column = std::max(own.column, slice.column);
    meet.rows = std::min(own.row + own.rows, slice.row + slice.rows) - meet.row;
    meet.columns = std::min(own.column + own.columns, slice.column + slice.columns) - meet.column;
    if (meet.rows <= 0 || meet.columns <= 0) continue;
    held.local += (meet.row - own.row) * held.stride + meet.column - own.column;
    list.push_back(held);
  }
  return list;
}

}  // namespace trident

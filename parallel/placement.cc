#include "parallel/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace trident {
namespace {

using Shard = Placement::Shard;

std::vector<Shard> shards_of(const Placement& placement, int dim) {
  if (placement.is_sharded_along(dim)) return placement.shardings[dim].shards;
  return {{0, placement.global.dim(dim)}};
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

// The rows of a tensor that is viewed as a matrix, which its dimensions before the last one number
// in row-major order.
class Rows {
 public:
  explicit Rows(const Placement& placement) : placement_(placement) {
    for (int dim = 0; dim < dims(); ++dim) {
      shards_.push_back(shards_of(placement, dim));
      extents_.push_back(total(shards_.back()));
    }
  }

  // The ranges of rows that local rows [begin, end) hold.
  std::vector<Range> held(std::int64_t begin, std::int64_t end) const {
    std::vector<Range> list;
    add(0, begin, end, 0, 0, list);
    return list;
  }

 private:
  int dims() const { return std::clamp(placement_.global.rank() - 1, 1, Shape::max_rank - 1); }

  // Adds the rows below an index of the dimensions before `dim`: local rows [begin, end) of those
  // from `local` on, whose global counterparts begin at `global`.
  void add(int dim, std::int64_t begin, std::int64_t end, std::int64_t local, std::int64_t global,
           std::vector<Range>& list) const {
    const auto d = static_cast<std::size_t>(dim);
    std::int64_t below = 1, global_below = 1;  // rows of one index of this dimension
    bool whole = true;                         // all rows below an index are held
    for (int inner = dim + 1; inner < dims(); ++inner) {
      below *= extents_[static_cast<std::size_t>(inner)];
      global_below *= placement_.global.dim(inner);
      whole = whole && !placement_.is_sharded_along(inner);
    }
    if (whole || dim + 1 >= dims()) {
      for (const Shard& shard : shards_[d]) {
        const std::int64_t real =
            std::clamp<std::int64_t>(placement_.global.dim(dim) - shard.begin, 0, shard.count);
        const std::int64_t first = std::max(begin, local),
                           last = std::min(end, local + real * below);
        if (first < last) {
          append({first, global + shard.begin * global_below + first - local, last - first}, list);
        }
        local += shard.count * below;
      }
      return;
    }
    for (const Shard& shard : shards_[d]) {
      for (std::int64_t i = 0; i < shard.count; ++i, local += below) {
        const std::int64_t index = shard.begin + i;
        const bool padding = index >= placement_.global.dim(dim);
        if (padding || local >= end || local + below <= begin) continue;
        add(dim + 1, begin, end, local, global + index * global_below, list);
      }
    }
  }
  // Joins ranges that follow each other on both sides.
  static void append(const Range& next, std::vector<Range>& list) {
    if (!list.empty()) {
      Range& last = list.back();
      const bool follows = last.local + last.count == next.local;
      if (follows && last.global + last.count == next.global) {
        last.count += next.count;
        return;
      }
    }
    list.push_back(next);
  }

  const Placement& placement_;
  std::vector<std::vector<Shard>> shards_;
  std::vector<std::int64_t> extents_;  // local
};

}  // namespace

Placement& Placement::shard(int dim, const std::vector<Share>& shares,
                            const std::vector<std::int64_t>& blocks) {
  const bool again =
      std::ranges::any_of(shares, [&](const Share& share) { return is_sharded_by(share.group); });
  if (dim >= global.rank() || blocks.empty() || is_sharded_along(dim) || again) {
    throw Error(fmt::format(
        "placement: dimension {} of {} is missing or has no blocks, or it or the group is sharded "
        "already",
        dim, global.to_string()));
  }
  int size = 1;
  Sharding sharding;
  for (const Share& share : shares) {
    size *= share.size;
    sharding.groups.push_back(share.group);
  }
  std::int64_t begin = 0;
  for (const std::int64_t block : blocks) {
    if (block % size != 0) {
      throw Error(fmt::format("placement: {} does not divide {} of dimension {} of {}", size, block,
                              dim, global.to_string()));
    }
    Shard shard{begin, block};
    for (const Share& share : shares) {
      shard.count /= share.size;
      shard.begin += share.rank * shard.count;
    }
    sharding.shards.push_back(shard);
    begin += block;
  }
  if (size > 1 || begin != global.dim(dim)) shardings[dim] = std::move(sharding);
  return *this;
}

bool Placement::is_sharded_by(Group group) const {
  return std::ranges::any_of(shardings, [&](const Sharding& sharding) {
    return std::ranges::find(sharding.groups, group) != sharding.groups.end();
  });
}

bool Placement::is_sharded() const {
  return std::ranges::any_of(shardings,
                             [](const Sharding& sharding) { return !sharding.shards.empty(); });
}

std::vector<Group> Placement::sharded_by() const {
  std::vector<Group> groups;
  for (const Sharding& sharding : shardings) {
    groups.insert(groups.end(), sharding.groups.begin(), sharding.groups.end());
  }
  return groups;
}

bool Placement::is_same_over(Group group) const {
  const std::span<const Group> possible = possible_groups();
  return group == data.shard || group == data.replicas ||
         (std::ranges::find(possible, group) != possible.end() && !is_sharded_by(group));
}

Shape Placement::local() const {
  Shape local = global;
  for (int dim = 0; dim < global.rank(); ++dim)
    local = local.with(dim, total(shards_of(*this, dim)));
  return local;
}

Placement Placement::along(int dim) const {
  Placement placement = replicated({dim < global.rank() ? global.dim(dim) : 1});
  placement.shardings[0] = shardings[dim];
  placement.data = data;
  placement.tied = tied;
  placement.copy = copy;
  return placement;
}

std::vector<LocalSlice> Placement::slices(std::int64_t begin, std::int64_t count) const {
  if (global.rank() == 0) throw Error("placement: a tensor without dimensions has no slices");
  const Rows rows(*this);
  const bool vector = global.rank() == 1;
  const int last = global.rank() - 1;
  const std::vector<Shard> columns = vector ? std::vector<Shard>{{0, 1}} : shards_of(*this, last);
  const std::int64_t extent = global.matrix_columns();
  const std::int64_t width = total(columns), end = begin + count;
  std::vector<LocalSlice> list;
  // Adds local rows [first, last) and, of each, columns [left, right).
  const auto add = [&](std::int64_t first, std::int64_t last_row, std::int64_t left,
                       std::int64_t right) {
    for (const Range& row : rows.held(first, last_row)) {
      for (const Range& column : ranges(columns, left, right, extent)) {
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

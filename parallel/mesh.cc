#include "parallel/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace trident {
namespace {

std::vector<std::size_t> order_of(const std::vector<MeshAxis>& axes, const std::string& order) {
  std::vector<std::size_t> numbers(axes.size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  std::erase_if(numbers, [&](std::size_t i) { return axes[i].folded; });
  if (order.empty()) return numbers;
  if (auto found = axis_order(axes, order)) return *found;
  std::string names, example;
  for (const std::size_t i : numbers) {
    const bool first = names.empty(), last = i == numbers.back();
    names += (first ? "" : last ? " and " : ", ") + axes[i].name;
    example += (first ? "" : "-") + axes[i].name;
  }
  throw RequestError(
      fmt::format("rank order '{}' must name {} once each (an axis of size 1 may be left out), "
                  "fastest first, as "
                  "in '{}'",
                  order, names, example));
}

void check_rank(int rank, int world) {
  if (rank < 0 || rank >= world) {
    throw RequestError(fmt::format("rank {} is not in a world of {} ranks", rank, world));
  }
}

void check_coordinate(const std::string& what, int value, std::int64_t size) {
  if (value < 0 || value >= size) {
    throw RequestError(
        fmt::format("{} coordinate {} is not one of 0 to {}", what, value, size - 1));
  }
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> axes, const std::string& order)
    : axes_(std::move(axes)), strides_(axes_.size()) {
  std::int64_t world = 1;
  for (const std::size_t i : order_of(axes_, order)) {
    const MeshAxis& axis = axes_[i];
    if (axis.size < 1) {
      throw RequestError(fmt::format("{} size is {}; needs 1 or more", axis.name, axis.size));
    }
    strides_[i] = static_cast<int>(world);
    if (axis.size > max_world_size || world * axis.size > max_world_size) {
      throw RequestError(fmt::format("{} is more than {} ranks", text_of(axes_), max_world_size));
    }
    world *= axis.size;
    if (!axis.in(Group::pipeline)) stage_.push_back(i);
  }
  world_ = static_cast<int>(world);
  std::int64_t folded = 1;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (!axes_[i].folded) continue;
    if (axes_[i].size < 1) {
      throw RequestError(
          fmt::format("{} size is {}; needs 1 or more", axes_[i].name, axes_[i].size));
    }
    strides_[i] = static_cast<int>(folded);
    folded = std::min(folded * std::min(axes_[i].size, max_world_size), max_world_size + 1);
  }
  const bool has_folded =
      std::any_of(axes_.begin(), axes_.end(), [](const MeshAxis& axis) { return axis.folded; });
  if (has_folded && folded != folded_ranks(axes_)) {
    throw RequestError(fmt::format("{}: the folded axes have {} ranks, a pipeline stage has {}",
                                   text_of(axes_), folded, folded_ranks(axes_)));
  }
}

int Mesh::in_stage(int rank) const {
  int number = 0, unit = 1;
  for (const std::size_t i : stage_) {
    const int size = static_cast<int>(axes_[i].size);
    number += rank / strides_[i] % size * unit;
    unit *= size;
  }
  return number;
}

int Mesh::from_stage(int number, int rank) const {
  for (const std::size_t i : stage_) {
    const int size = static_cast<int>(axes_[i].size);
    rank += (number % size - rank / strides_[i] % size) * strides_[i];
    number /= size;
  }
  return rank;
}

std::vector<int> Mesh::coordinates(int rank) const {
  check_rank(rank, world_);
  std::vector<int> at;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const int number = axes_[i].folded ? in_stage(rank) : rank;
    at.push_back(number / strides_[i] % static_cast<int>(axes_[i].size));
  }
  return at;
}

int Mesh::rank(const std::vector<int>& coordinates) const {
  if (coordinates.size() != axes_.size()) {
    throw RequestError(fmt::format("{} coordinates for {} axes", coordinates.size(), axes_.size()));
  }
  int rank = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    check_coordinate(axes_[i].name, coordinates[i], axes_[i].size);
    if (!axes_[i].folded) rank += coordinates[i] * strides_[i];
  }
  return rank;
}

int Mesh::size(Group group) const {
  return static_cast<int>(group_size(axes_, group));
}

Mesh::Places Mesh::places_of(std::size_t axis, Group group) const {
  const MeshAxis::Places places = axes_[axis].places_of(group);
  return {strides_[axis] * static_cast<int>(places.stride), static_cast<int>(places.count)};
}

int Mesh::place(int rank, Group group) const {
  check_rank(rank, world_);
  int place = 0, unit = 1;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (!axes_[i].in(group)) continue;
    const auto [stride, count] = places_of(i, group);
    place += (axes_[i].folded ? in_stage(rank) : rank) / stride % count * unit;
    unit *= count;
  }
  return place;
}

int Mesh::moved(int rank, Group group, int place) const {
  check_rank(rank, world_);
  check_coordinate("group", place, size(group));
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (!axes_[i].in(group)) continue;
    const auto [stride, count] = places_of(i, group);
    const int to = place % count;
    if (axes_[i].folded) {
      const int number = in_stage(rank);
      rank = from_stage(number + (to - number / stride % count) * stride, rank);
    } else {
      rank += (to - rank / stride % count) * stride;
    }
    place /= count;
  }
  return rank;
}

std::vector<int> Mesh::group(int rank, Group group) const {
  check_rank(rank, world_);
  std::vector<int> ranks;
  for (int place = 0; place < size(group); ++place) ranks.push_back(moved(rank, group, place));
  return ranks;
}

std::vector<int> Mesh::pipeline(int rank) const {
  return group(rank, Group::pipeline);
}

std::vector<int> Mesh::same_stage(int place) const {
  std::vector<int> ranks{moved(0, Group::pipeline, place)};
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].in(Group::pipeline) || axes_[i].folded) continue;
    const std::size_t count = ranks.size();
    for (int other = 1; other < static_cast<int>(axes_[i].size); ++other) {
      for (std::size_t r = 0; r < count; ++r) ranks.push_back(ranks[r] + other * strides_[i]);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string Mesh::pipeline_place(int rank) const {
  const std::vector<int> at = coordinates(rank);
  std::string text;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (!axes_[i].in(Group::pipeline)) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axes_[i].name, at[i]);
  }
  return text;
}

std::vector<int> Mesh::embedding_group(int rank, StageEnds ends) const {
  const int last = ends.last < 0 ? size(Group::pipeline) - 1 : ends.last;
  const int holds_first = moved(rank, Group::pipeline, ends.first);
  if (ends.first == last) return {holds_first};
  return {holds_first, moved(rank, Group::pipeline, last)};
}

}  // namespace trident

#include "parallel/rank_grid.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace trident {
namespace {

constexpr std::array<const char*, 3> axis_names = {"tp", "dp", "pp"};  // by Axis

std::size_t index(Axis axis) {
  return static_cast<std::size_t>(axis);
}

// "tp-dp-pp" → axes, fastest first.
std::array<Axis, 3> parse_order(const std::string& order) {
  std::array<Axis, 3> axes{};
  std::array<int, 3> permutation = {0, 1, 2};
  do {
    std::string text;
    for (std::size_t i = 0; i < 3; ++i) {
      text +=
          (i == 0 ? "" : "-") + std::string(axis_names[static_cast<std::size_t>(permutation[i])]);
      axes[i] = static_cast<Axis>(permutation[i]);
    }
    if (text == order) return axes;
  } while (std::next_permutation(permutation.begin(), permutation.end()));
  throw RequestError(fmt::format(
      "rank order '{}' must name tp, dp and pp once each, fastest first, as in 'tp-dp-pp'", order));
}

void check_rank(int rank, int world) {
  if (rank < 0 || rank >= world) {
    throw RequestError(fmt::format("rank {} is not in a world of {} ranks", rank, world));
  }
}

}  // namespace

RankGrid::RankGrid(int data, int tensor, int pipeline, const std::string& order)
    : sizes_{tensor, data, pipeline} {
  const std::array<Axis, 3> axes = parse_order(order);
  std::int64_t world = 1;
  for (const Axis axis : axes) {
    const int size = sizes_[index(axis)];
    if (size < 1) {
      throw RequestError(
          fmt::format("{} size is {}; needs 1 or more", axis_names[index(axis)], size));
    }
    strides_[index(axis)] = static_cast<int>(world);
    world *= size;
    if (world > max_world_size) {
      throw RequestError(fmt::format("dp {} x tp {} x pp {} is more than {} ranks", data, tensor,
                                     pipeline, max_world_size));
    }
  }
}

int RankGrid::world_size() const {
  return sizes_[0] * sizes_[1] * sizes_[2];
}

int RankGrid::size(Axis axis) const {
  return sizes_[index(axis)];
}

Coordinates RankGrid::coordinates(int rank) const {
  check_rank(rank, world_size());
  const auto along = [&](Axis axis) { return rank / strides_[index(axis)] % sizes_[index(axis)]; };
  return {along(Axis::tensor), along(Axis::data), along(Axis::pipeline)};
}

int RankGrid::rank(const Coordinates& at) const {
  const std::array<int, 3> values = {at.tensor, at.data, at.pipeline};
  int rank = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    if (values[i] < 0 || values[i] >= sizes_[i]) {
      throw RequestError(fmt::format("{} coordinate {} is not one of 0 to {}", axis_names[i],
                                     values[i], sizes_[i] - 1));
    }
    rank += values[i] * strides_[i];
  }
  return rank;
}

std::vector<int> RankGrid::group(int rank, Axis axis) const {
  check_rank(rank, world_size());
  const int stride = strides_[index(axis)], size = sizes_[index(axis)];
  const int first = rank - rank / stride % size * stride;
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

std::vector<int> RankGrid::embedding_group(int rank, int first, int last) const {
  const std::vector<int> stages = group(rank, Axis::pipeline);
  if (last < 0) last = static_cast<int>(stages.size()) - 1;
  const auto at = [&](int pipeline) { return stages.at(static_cast<std::size_t>(pipeline)); };
  if (first == last) return {at(first)};
  return {at(first), at(last)};
}

}  // namespace trident

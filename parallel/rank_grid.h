// Pure arithmetic from (world size, degrees, order) to coordinates and groups; no process needed.
// Every function throws RequestError for an argument out of range, naming it and the range.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace trident {

enum class Axis { tensor, data, pipeline };

struct Coordinates {
  int tensor = 0;
  int data = 0;
  int pipeline = 0;
  bool operator==(const Coordinates&) const = default;
};

// The ranks 0 … dp·tp·pp-1 as a reshape to three axes, the first named axis of `order` varying
// fastest ("tp-dp-pp", Megatron-LM's default).
class RankGrid {
 public:
  static constexpr std::int64_t max_world_size = 1 << 24;

  RankGrid(int data, int tensor, int pipeline, const std::string& order = "tp-dp-pp");
  int world_size() const;
  int size(Axis axis) const;
  Coordinates coordinates(int rank) const;
  int rank(const Coordinates& at) const;
  // World ranks that differ from `rank` only along `axis`, ascending along it.
  std::vector<int> group(int rank, Axis axis) const;
  // The ranks of `rank`'s (data, tensor) that hold the first and the last stage: pipeline ranks
  // `first` and `last` (-1: the last one); one where they are the same.
  std::vector<int> embedding_group(int rank, int first = 0, int last = -1) const;

 private:
  std::array<int, 3> sizes_;    // by Axis
  std::array<int, 3> strides_;  // by Axis
};

}  // namespace trident

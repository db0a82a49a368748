// The axes along which the ranks of a job divide its work, and what ranks that differ along one
// have in common. World size, groups, plan and printing iterate over them, so that an axis more is
// a row more (ParallelConfig::axes).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// What a rank's groups are for. An axis may be part of several; a group over several axes has the
// product of their ranks.
enum class Group : std::uint8_t {
  tensor,    // who shares each layer
  pipeline,  // whom a micro-batch passes one after the other
  batch,     // who gets different samples
  shard,     // who shares ZeRO's states of a parameter
  replicas,  // who holds the same shard once more
  loss,      // over whom loss and gradients are summed
};

// Those that may cut a parameter into parts. Of ranks that hold the same part one speaks for all:
// the first of each such group that doesn't cut it (Placement::speaks).
inline constexpr Group sharding_groups[] = {Group::tensor};

struct MeshAxis {
  std::string name = {};   // "tp": in rank orders, plans and timelines
  std::string title = {};  // "tensor", for people
  std::string key = {};    // of the config's section "parallel"; "": it isn't asked for there
  std::int64_t size = 1;
  std::vector<Group> groups = {};

  bool in(Group group) const;
  bool operator==(const MeshAxis&) const = default;
};

// Ranks of each group of this kind; 1 where no axis is part of it.
std::int64_t group_size(const std::vector<MeshAxis>& axes, Group group);
std::int64_t world_size(const std::vector<MeshAxis>& axes);

// The axes by number in the order that names them, joined by dashes, the fastest first
// ("tp-dp-pp"). Axes without a key may be left out and then come last. Nothing where it names
// something else, or an axis twice or not at all.
std::optional<std::vector<std::size_t>> axis_order(const std::vector<MeshAxis>& axes,
                                                   std::string_view order);

std::string text_of(const std::vector<MeshAxis>& axes);    // "dp 2 x tp 2 x pp 4"
std::string titles_of(const std::vector<MeshAxis>& axes);  // "data 2 × tensor 2 × pipeline 4"

}  // namespace trident

// The axes along which the ranks of a job divide its work, and the groups of ranks that an axis is
// part of. World size, groups, plan and printing iterate over the axes, so a new axis is a new row
// (ParallelConfig::axes).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// The purpose of a group of ranks. An axis may be part of several groups. The size of a group over
// several axes is the product of their sizes.
enum class Group : std::uint8_t {
  tensor,    // ranks that share each layer
  pipeline,  // ranks that a micro-batch passes one after the other
  context,   // ranks that share each sample
  // Of context parallelism in two levels:
  context_heads,  // neighbours that exchange positions for heads
  context_ring,   // ranks with the same heads, around which keys and values pass
  batch,          // ranks with different samples
  shard,          // ranks that share ZeRO's states of a parameter
  replicas,       // ranks with another copy of the same shard
  loss,           // ranks over which loss and gradients are summed
  // Of a mixture of experts:
  expert,           // ranks with different experts
  expert_tensor,    // ranks that share each expert
  exchange,         // both: ranks that send tokens to each other's experts
  expert_shard,     // ranks that share ZeRO's states of an expert
  expert_replicas,  // ranks with another copy of the same shard: no axis is part of it
};

// The groups that may shard a parameter of a layer that all its ranks share, and those that may
// shard an expert's. Among the ranks with the same shard, the primary replica is the first rank of
// each of these groups that does not shard the parameter (Placement::is_primary).
inline constexpr Group sharding_groups[] = {Group::tensor};
inline constexpr Group expert_sharding_groups[] = {Group::expert, Group::expert_tensor};

// Axes divide the ranks of a job. Folded axes divide the ranks of a pipeline stage once more
// (Megatron Core's parallel folding). ep · etp · holders = dp · cp · tp, times the size of any axis
// that a program adds: experts regroup the ranks of a stage. The first folded axis varies fastest
// in rank order.
struct MeshAxis {
  std::string name = {};   // "tp": in rank orders, plans and timelines
  std::string title = {};  // "tensor", for people
  std::string key = {};    // its key in the config's section "parallel"; "": not a config key
  std::int64_t size = 1;
  std::vector<Group> groups = {};
  bool folded = false;
  // Groups of some of its ranks: place i of the axis is place i % n of a first part of n ranks,
  // i / n % m of a second one of m, and so on.
  struct Part {
    Group group;
    std::int64_t size = 1;
    bool operator==(const Part&) const = default;
  };
  std::vector<Part> parts = {};

  bool in(Group group) const;
  // The places of the axis that differ within a group of it: `count`, `stride` apart.
  struct Places {
    std::int64_t stride = 1, count = 1;
  };
  Places places_of(Group group) const;
  bool operator==(const MeshAxis&) const = default;
};

// The folded axes of experts. `tensor` ranks share each expert; `parallel` groups of these ranks
// have different experts. Their product must divide folded_ranks(axes), so that each expert is held
// equally often.
std::vector<MeshAxis> expert_axes(const std::vector<MeshAxis>& axes, std::int64_t parallel,
                                  std::int64_t tensor);
// The ranks that the folded axes divide.
std::int64_t folded_ranks(const std::vector<MeshAxis>& axes);
// The number of ranks of each group of this kind; 1 if no axis is part of it.
std::int64_t group_size(const std::vector<MeshAxis>& axes, Group group);
std::int64_t world_size(const std::vector<MeshAxis>& axes);

// The axis of context parallelism, which divides samples. An order may name it where no axis has
// this name: its size is then 1.
inline constexpr std::string_view context_axis = "cp";

// The indices of the axes in the order that `order` names: joined by dashes, the fastest-varying
// first ("tp-cp-dp-pp"). Axes without a key and axes of size 1 may be omitted and then come last.
// Folded axes have no place in an order.
// Returns nothing if `order` has an unknown name, names an axis twice, or omits another axis.
std::optional<std::vector<std::size_t>> axis_order(const std::vector<MeshAxis>& axes,
                                                   std::string_view order);

// `order` with the axes that have a key and that it omits, in the order of `usual`; `order` itself
// where `usual` doesn't fit these axes.
std::string completed_order(const std::vector<MeshAxis>& axes, std::string_view order,
                            std::string_view usual);

std::string text_of(const std::vector<MeshAxis>& axes);    // "dp 2 x tp 2 x pp 4"
std::string titles_of(const std::vector<MeshAxis>& axes);  // "data 2 × tensor 2 × pipeline 4"

}  // namespace trident

#include "parallel/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace trident {
namespace {

constexpr const char* world_name = "world";
constexpr const char* embedding_name = "embedding";

// The groups that carry traffic, with its names.
enum class Made : std::uint8_t { always, with_an_axis, of_several_ranks };
struct Carrier {
  Group group;
  const char* name;
  Made made;
};
constexpr Carrier carriers[] = {{Group::tensor, "tensor", Made::always},
                                {Group::context, "context", Made::of_several_ranks},
                                {Group::context_heads, "context_heads", Made::of_several_ranks},
                                {Group::context_ring, "context_ring", Made::of_several_ranks},
                                {Group::pipeline, "pipeline", Made::always},
                                {Group::shard, "data", Made::always},
                                {Group::replicas, "replicas", Made::of_several_ranks},
                                {Group::exchange, "expert", Made::of_several_ranks},
                                {Group::expert, "across_experts", Made::of_several_ranks},
                                {Group::expert_tensor, "expert_tensor", Made::of_several_ranks},
                                {Group::expert_shard, "expert_data", Made::with_an_axis}};

bool is_made(const Carrier& carrier, const Mesh& mesh) {
  if (carrier.made == Made::always || mesh.size(carrier.group) > 1) return true;
  return carrier.made == Made::with_an_axis &&
         std::ranges::any_of(mesh.axes(),
                             [&](const MeshAxis& axis) { return axis.in(carrier.group); });
}

}  // namespace

std::optional<std::string> traffic_name(Group group) {
  for (const Carrier& carrier : carriers) {
    if (carrier.group == group) return carrier.name;
  }
  return std::nullopt;
}

std::optional<Group> group_of_traffic(std::string_view name) {
  for (const Carrier& carrier : carriers) {
    if (carrier.name == name) return carrier.group;
  }
  return std::nullopt;
}

std::string_view traffic_of(std::string_view group_name) {
  const bool own = group_of_traffic(group_name).has_value() || group_name == embedding_name;
  return own ? group_name : world_name;
}

bool is_within_layers(std::string_view traffic) {
  const auto group = group_of_traffic(traffic);
  return group == Group::tensor || group == Group::context || group == Group::context_heads ||
         group == Group::context_ring || group == Group::exchange;
}

std::string_view layer_traffic() {
  return carriers[0].name;
}

std::vector<std::string> traffic_names(const Mesh& mesh) {
  std::vector<std::string> names{world_name, embedding_name};
  for (const Carrier& carrier : carriers) {
    if (is_made(carrier, mesh)) names.emplace_back(carrier.name);
  }
  return names;
}

int place_of(const Mesh& mesh, StageEnds ends, std::string_view traffic, int rank) {
  if (const auto group = group_of_traffic(traffic)) return mesh.place(rank, *group);
  if (traffic != embedding_name) return rank;
  const std::vector<int> holders = mesh.embedding_group(rank, ends);
  return static_cast<int>(std::find(holders.begin(), holders.end(), rank) - holders.begin());
}

int Topology::model_ranks() const {
  return std::max(size(Group::tensor) * size(Group::context), size(Group::exchange)) *
         size(Group::pipeline);
}

bool Topology::leads_layers() const {
  return place(Group::tensor) == 0;
}

const ProcessGroup& Topology::of(Group group) const {
  static const ProcessGroup none;
  const auto found = groups.find(group);
  return found == groups.end() ? none : found->second;
}

std::vector<TrafficGroup> Topology::traffic_groups() const {
  std::vector<TrafficGroup> list{{world_name, {}, world}, {embedding_name, {}, embedding}};
  for (const auto& [group, name, made] : carriers) {
    if (groups.contains(group)) list.push_back({name, group, of(group)});
  }
  return list;
}

std::vector<int> ranks_of(const Topology& topology, const TrafficGroup& group, int rank) {
  if (group.group) return topology.mesh.group(rank, *group.group);
  if (group.name == embedding_name) return topology.mesh.embedding_group(rank, topology.ends);
  std::vector<int> all(static_cast<std::size_t>(topology.mesh.world_size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Topology make_topology(const ProcessGroup& world, const Mesh& mesh, const Nodes& nodes,
                       StageEnds ends) {
  if (world.size() != mesh.world_size()) {
    throw RequestError(fmt::format("the world has {} ranks; {} needs {}", world.size(),
                                   text_of(mesh.axes()), mesh.world_size()));
  }
  const int rank = world.rank();
  const auto make = [&](const std::vector<int>& ranks, const char* name) {
    return world.subgroup(ranks, name);
  };
  Topology t{mesh, ends, world, {}, {}, {}, {}, {}};
  for (const Carrier& carrier : carriers) {
    if (!is_made(carrier, mesh)) continue;
    t.groups[carrier.group] = make(mesh.group(rank, carrier.group), carrier.name);
  }
  const std::vector<int> holders = mesh.embedding_group(rank, ends);
  if (std::find(holders.begin(), holders.end(), rank) != holders.end()) {
    t.embedding = make(holders, embedding_name);
  }
  t.node = make(nodes.inside(rank), "node");
  t.across_nodes = make(nodes.across(rank), "across_nodes");
  if (const auto across = nodes.groups_across(mesh, Group::tensor); !across.empty()) {
    const int size = t.size(Group::tensor);
    t.warnings.push_back(fmt::format(
        "tensor parallelism crosses nodes: {} of {} groups of {} ranks do (the first is {}; nodes: "
        "{}); its all-reduces are the most frequent traffic, keep them inside a node: start the "
        "ranks node after node (mpirun --map-by slot), a multiple of {} on each",
        across.size(), world.size() / size, size, fmt::join(across.front(), ","), nodes.text(),
        size));
  }
  return t;
}

}  // namespace trident

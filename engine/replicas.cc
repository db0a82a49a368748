#include "engine/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/files/content_hash.h"

namespace trident {
namespace {

// Hashes slice by slice, to avoid a second copy of a table.
std::uint64_t hash_of(Context& context, const Tensor& weight) {
  constexpr std::int64_t slice = std::int64_t{1} << 20;  // elements
  std::uint64_t hash = 0;
  std::vector<std::byte> bytes;
  for (std::int64_t begin = 0; begin < weight.numel(); begin += slice) {
    const Tensor part = weight.flat(begin, std::min(slice, weight.numel() - begin));
    bytes.resize(static_cast<std::size_t>(part.bytes()));
    context.copy_to_host(bytes, part);
    context.synchronize();
    hash = content_hash(bytes, hash);
  }
  return hash;
}

struct Print {
  std::string name;
  std::int64_t hash;
};

void compare(Context& context, const ProcessGroup& group, const std::vector<Print>& own) {
  if (group.size() == 1 || own.empty()) return;
  const auto count = static_cast<std::int64_t>(own.size());
  std::vector<std::int64_t> hashes;
  for (const Print& print : own) hashes.push_back(print.hash);
  // A group of its own, so that its traffic does not count as the steps'.
  const ProcessGroup members = group.duplicate("replicas");
  const Tensor mine = context.from_host<std::int64_t>({count}, hashes, Category::communication);
  const Tensor all = context.empty({count * group.size()}, DType::i64, Category::communication);
  members.all_gather(context, mine, all);
  const std::vector<std::int64_t> found = context.to_host<std::int64_t>(all);
  const std::vector<int>& ranks = group.world_ranks();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::size_t parameter = i % own.size();
    if (found[i] == found[parameter]) continue;
    throw RequestError(fmt::format(
        "group '{}': parameter {} differs before the first step: rank {} has {:016x}, rank {} has "
        "{:016x} (hashes of their bits); initial weights that should be equal are not",
        group.name(), own[parameter].name, ranks[0], static_cast<std::uint64_t>(found[parameter]),
        ranks[i / own.size()], static_cast<std::uint64_t>(found[i])));
  }
}

}  // namespace

void require_equal_replicas(RankModel& model) {
  Context& context = model.context();
  const Topology& groups = model.topology();
  std::map<Group, std::vector<Print>> alike;  // by the group that replicates them
  std::vector<Print> tied;
  for (const auto& parameter : unique_parameters(model.chunks())) {
    if (!parameter->weight()) continue;  // sharded under stage 3
    const ParameterSpec& spec = parameter->spec();
    const Print print{spec.name, static_cast<std::int64_t>(hash_of(context, parameter->weight()))};
    for (const auto& [group, members] : groups.groups) {
      if (spec.placement.is_same_over(group)) alike[group].push_back(print);
    }
    if (spec.placement.tied) tied.push_back(print);
  }
  for (const auto& [group, prints] : alike) compare(context, groups.of(group), prints);
  if (groups.embedding.defined()) compare(context, groups.embedding, tied);
}

}  // namespace trident

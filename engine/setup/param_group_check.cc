#include "engine/setup/param_group_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "engine/optimizer/param_groups.h"

namespace trident {

std::vector<std::string> parameter_names(const Config& config, const Architecture& architecture) {
  std::vector<std::string> names;
  const TransformerShape shape = architecture.shape(config);
  const std::vector<Chunk> ends = build_chunks(architecture, shape, {}, {0}, {0});
  for (const auto& module : ends.front().modules) {
    for (const auto& parameter : module->parameters()) {
      if (std::ranges::find(names, parameter->name()) == names.end()) {
        names.push_back(parameter->name());
      }
    }
  }
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    for (const auto& parameter : architecture.layer({}, shape, static_cast<int>(i))->parameters()) {
      names.push_back(parameter->name());
    }
  }
  return names;
}

void check_param_groups(const Config& config, const Architecture& architecture) {
  const std::vector<ParamGroup>& groups = config.optimizer.param_groups;
  if (groups.empty()) return;
  const std::vector<std::string> names = parameter_names(config, architecture);
  std::set<const ParamGroup*> used;
  for (const std::string& name : names) used.insert(group_of(groups, name));
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (used.contains(&groups[i])) continue;
    // The names of embedding, head and first layer are enough for the message.
    std::vector<std::string> some;
    for (const std::string& name : names) {
      if (!name.starts_with("layers.") || name.starts_with("layers.0.")) some.push_back(name);
    }
    problems.push_back(fmt::format(
        "config: /optimizer/param_groups/{}/params: \"{}\" matches no parameter, or only "
        "parameters of earlier groups; names are {}",
        i, printable(groups[i].params, 60), fmt::join(some, ", ")));
  }
  if (!problems.empty()) throw RequestError(problems);
}

}  // namespace trident

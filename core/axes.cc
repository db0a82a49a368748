#include "core/axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace trident {

bool MeshAxis::in(Group group) const {
  return std::find(groups.begin(), groups.end(), group) != groups.end() ||
         std::any_of(parts.begin(), parts.end(),
                     [&](const Part& part) { return part.group == group; });
}

MeshAxis::Places MeshAxis::places_of(Group group) const {
  std::int64_t stride = 1;
  for (const Part& part : parts) {
    if (part.group == group) return {stride, part.size};
    stride *= part.size;
  }
  return {1, in(group) ? size : 1};
}

std::int64_t group_size(const std::vector<MeshAxis>& axes, Group group) {
  std::int64_t size = 1;
  for (const MeshAxis& axis : axes) size *= axis.places_of(group).count;
  return size;
}

std::int64_t world_size(const std::vector<MeshAxis>& axes) {
  std::int64_t size = 1;
  for (const MeshAxis& axis : axes) size *= axis.folded ? 1 : axis.size;
  return size;
}

std::int64_t folded_ranks(const std::vector<MeshAxis>& axes) {
  std::int64_t size = 1;
  for (const MeshAxis& axis : axes) {
    if (!axis.folded && !axis.in(Group::pipeline)) size *= axis.size;
  }
  return size;
}

std::vector<MeshAxis> expert_axes(const std::vector<MeshAxis>& axes, std::int64_t parallel,
                                  std::int64_t tensor) {
  return {{.name = "etp",
           .title = "expert tensor",
           .key = "expert_tensor_parallel_size",
           .size = tensor,
           .groups = {Group::expert_tensor, Group::exchange},
           .folded = true},
          {.name = "ep",
           .title = "expert",
           .key = "expert_model_parallel_size",
           .size = parallel,
           .groups = {Group::expert, Group::exchange},
           .folded = true},
          {.name = "edp",
           .title = "expert data",
           .size = std::max<std::int64_t>(
               1, folded_ranks(axes) / std::max<std::int64_t>(1, parallel * tensor)),
           .groups = {Group::expert_shard},
           .folded = true}};
}

std::optional<std::vector<std::size_t>> axis_order(const std::vector<MeshAxis>& axes,
                                                   std::string_view order) {
  std::vector<std::size_t> found;
  bool named_context = false;  // where no axis has the name
  const auto known = [&](std::size_t i) {
    return std::find(found.begin(), found.end(), i) != found.end();
  };
  for (std::string_view rest = order;;) {
    const std::string_view name = rest.substr(0, rest.find('-'));
    const auto axis = std::find_if(axes.begin(), axes.end(),
                                   [&](const MeshAxis& a) { return a.name == name && !a.folded; });
    if (axis != axes.end()) {
      const auto i = static_cast<std::size_t>(axis - axes.begin());
      if (known(i)) return std::nullopt;
      found.push_back(i);
    } else if (name != context_axis || std::exchange(named_context, true)) {
      return std::nullopt;
    }
    if (name.size() == rest.size()) break;
    rest.remove_prefix(name.size() + 1);
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (known(i) || axes[i].folded) continue;
    if (!axes[i].key.empty() && axes[i].size > 1) return std::nullopt;
    found.push_back(i);
  }
  return found;
}

std::string completed_order(const std::vector<MeshAxis>& axes, std::string_view order,
                            std::string_view usual) {
  std::string all(order);
  const auto indices = axis_order(axes, usual);
  if (!indices) return all;
  for (const std::size_t i : *indices) {
    const std::string name = "-" + axes[i].name;
    if (!axes[i].key.empty() && ("-" + all + "-").find(name + "-") == std::string::npos) {
      all += name;
    }
  }
  return all;
}

namespace {

// The axes that a text names: folded ones only where a key gives them more than one rank.
std::vector<MeshAxis> named(std::vector<MeshAxis> axes) {
  std::erase_if(axes, [](const MeshAxis& axis) {
    return axis.folded && (axis.size == 1 || axis.key.empty());
  });
  return axes;
}

}  // namespace

std::string text_of(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& axis : named(axes)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", axis.name, axis.size);
  }
  return text;
}

std::string titles_of(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& axis : named(axes)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " × ", axis.title, axis.size);
  }
  return text;
}

}  // namespace trident

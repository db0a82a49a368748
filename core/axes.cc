#include "core/axes.h"

#include <fmt/format.h>

#include <algorithm>

namespace trident {

bool MeshAxis::in(Group group) const {
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

std::int64_t group_size(const std::vector<MeshAxis>& axes, Group group) {
  std::int64_t size = 1;
  for (const MeshAxis& axis : axes) {
    if (axis.in(group)) size *= axis.size;
  }
  return size;
}

std::int64_t world_size(const std::vector<MeshAxis>& axes) {
  std::int64_t size = 1;
  for (const MeshAxis& axis : axes) size *= axis.size;
  return size;
}

std::optional<std::vector<std::size_t>> axis_order(const std::vector<MeshAxis>& axes,
                                                   std::string_view order) {
  std::vector<std::size_t> found;
  const auto known = [&](std::size_t i) {
    return std::find(found.begin(), found.end(), i) != found.end();
  };
  for (std::string_view rest = order;;) {
    const std::string_view name = rest.substr(0, rest.find('-'));
    const auto axis =
        std::find_if(axes.begin(), axes.end(), [&](const MeshAxis& a) { return a.name == name; });
    const auto i = static_cast<std::size_t>(axis - axes.begin());
    if (axis == axes.end() || known(i)) return std::nullopt;
    found.push_back(i);
    if (name.size() == rest.size()) break;
    rest.remove_prefix(name.size() + 1);
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (known(i)) continue;
    if (!axes[i].key.empty() && axes[i].size > 1) return std::nullopt;
    found.push_back(i);
  }
  return found;
}

std::string text_of(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& axis : axes) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", axis.name, axis.size);
  }
  return text;
}

std::string titles_of(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& axis : axes) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " × ", axis.title, axis.size);
  }
  return text;
}

}  // namespace trident

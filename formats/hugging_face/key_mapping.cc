#include "formats/hugging_face/key_mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/files/json.h"
#include "base/printable.h"

namespace trident {
namespace {

// The number of characters that must match. A name without a pattern counts more than any pattern
// that matches it.
std::size_t text_of(const std::string& from) {
  return from.find('*') != std::string::npos ? from.size() - 1 : from.size() + 1;
}

std::string place_of(const std::string& entry) {
  return "config: " + json_pointer_append("/checkpoint/key_mapping", entry);
}

}  // namespace

std::optional<std::string> mapped_name(const std::string& name, const std::string& from,
                                       const std::string& to) {
  const std::size_t star = from.find('*');
  if (star == std::string::npos) return name == from ? std::optional(to) : std::nullopt;
  const std::string_view head = std::string_view(from).substr(0, star);
  const std::string_view tail = std::string_view(from).substr(star + 1);
  if (name.size() < head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail)) {
    return std::nullopt;
  }
  std::string result = to;
  return result.replace(to.find('*'), 1,
                        name.substr(star, name.size() - head.size() - tail.size()));
}

std::map<std::string, std::string> mapped_names(const std::vector<std::string>& names,
                                                const std::map<std::string, std::string>& mapping) {
  std::vector<std::string> problems;
  for (const auto& [from, to] : mapping) {
    const auto stars = std::ranges::count(from, '*');
    if (stars > 1 || stars != std::ranges::count(to, '*')) {
      problems.push_back(
          fmt::format("{}: \"{}\": needs one * in both names, or none", place_of(from), to));
    }
  }
  if (!problems.empty()) throw RequestError(problems);
  std::map<std::string, std::string> result;
  std::map<std::string, std::string> taken;  // new name: old name
  std::set<std::string> used;
  for (const std::string& name : names) {
    std::string& renamed = result[name] = name;
    std::string best, equal;  // entries; `equal`: another entry with the same amount of text
    for (const auto& [from, to] : mapping) {
      const auto other = mapped_name(name, from, to);
      if (!other || (!best.empty() && text_of(from) < text_of(best))) continue;
      equal = !best.empty() && text_of(from) == text_of(best) ? best : "";
      best = from;
      renamed = *other;
    }
    if (!best.empty()) used.insert(best);
    if (!equal.empty()) {
      problems.push_back(fmt::format("{}: \"{}\" matches \"{}\" equally well", place_of(best),
                                     printable(equal), printable(name)));
    }
    const auto [at, is_new] = taken.emplace(renamed, name);
    if (!is_new) {
      problems.push_back(
          fmt::format("config: /checkpoint/key_mapping: \"{}\" and \"{}\" would both "
                      "be \"{}\"",
                      printable(at->second), printable(name), printable(renamed)));
    }
  }
  for (const auto& [from, to] : mapping) {
    if (used.contains(from)) continue;
    problems.push_back(
        fmt::format("{}: it applies to no tensor: none matches, or other entries match better",
                    place_of(from)));
  }
  if (!problems.empty()) throw RequestError(problems);
  return result;
}

}  // namespace trident

#include "training/run/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "core/printable.h"

namespace trident {

std::vector<Host> read_hosts(const std::string& path) {
  std::vector<Host> hosts;
  std::istringstream lines(read_file(path, std::uint64_t{1} << 24));
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    if (!(words >> name)) continue;
    std::int64_t slots = 0;
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      std::int64_t value = 0;
      const char* end = word.data() + word.size();
      const bool known = key == "slots" || key == "max_slots" || key == "max-slots";
      const auto read = equals == std::string::npos
                            ? std::from_chars_result{end, std::errc::invalid_argument}
                            : std::from_chars(word.data() + equals + 1, end, value);
      if (!known || read.ec != std::errc() || read.ptr != end || value < 0) {
        throw RequestError(
            fmt::format("{}:{}: \"{}\": needs slots=N", path, number, printable(word)));
      }
      if (key == "slots") slots = value;
    }
    const auto same = std::ranges::find(hosts, name, &Host::name);
    if (same == hosts.end()) {
      hosts.push_back({name, std::max<std::int64_t>(1, slots)});
    } else {
      same->slots += std::max<std::int64_t>(1, slots);
    }
  }
  if (hosts.empty()) throw RequestError(path + ": names no host");
  return hosts;
}

Ranks choose_ranks(const ConfigRequest& request, std::optional<std::int64_t> least,
                   std::optional<std::int64_t> most, std::optional<std::int64_t> available) {
  if (!least && !most) {
    const std::int64_t count = load(request, Launch{}).config.world_size();
    if (!available || count <= *available) return {count, {}};
    throw RequestError(fmt::format(
        "the config needs {} ranks, there are {}; --min-ranks allows fewer", count, *available));
  }
  std::optional<std::int64_t> top = most;
  if (available) top = std::min(top.value_or(*available), *available);
  if (!top) top = load(request, Launch{}).config.world_size();
  const std::int64_t bottom = std::max<std::int64_t>(1, least.value_or(1));
  std::string why;
  for (std::int64_t count = *top; count >= bottom; --count) {
    ConfigRequest asked = request;
    asked.set.emplace_back(size_follows_ranks);
    asked.ranks = count;
    try {
      load(asked, Launch{});
      return {count, {size_follows_ranks}};
    } catch (const RequestError& error) {
      if (why.empty()) why = error.what();
    }
  }
  throw RequestError(fmt::format("no number of ranks from {} to {} goes with this config{}", bottom,
                                 *top, why.empty() ? "" : ":\n" + why));
}

}  // namespace trident

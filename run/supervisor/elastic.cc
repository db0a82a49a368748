#include "run/supervisor/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/error.h"
#include "base/files/file.h"
#include "base/printable.h"
#include "base/units.h"

namespace trident {
namespace {

constexpr std::int64_t kMostSlots = 1'000'000;
constexpr const char* kOfHosts =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:@%";

}  // namespace

std::vector<Host> read_hosts(const std::string& path) {
  std::vector<Host> hosts;
  std::istringstream lines(read_file(path, std::uint64_t{1} << 24));
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    if (!(words >> name)) continue;
    // The name becomes a word of the commands that reach the host.
    const bool plain = name.find_first_not_of(kOfHosts) == std::string::npos && name[0] != '-';
    if (!plain) {
      throw RequestError(fmt::format("{}:{}: \"{}\": is not a host name", printable(path), number,
                                     printable(name)));
    }
    std::int64_t slots = -1;
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      std::int64_t value = 0;
      const char* end = word.data() + word.size();
      const bool known = key == "slots" || key == "max_slots" || key == "max-slots";
      const auto read = equals == std::string::npos
                            ? std::from_chars_result{end, std::errc::invalid_argument}
                            : std::from_chars(word.data() + equals + 1, end, value);
      if (!known || read.ec != std::errc() || read.ptr != end || value < 0 || value > kMostSlots) {
        throw RequestError(fmt::format("{}:{}: \"{}\": needs slots=N, N from 0 to {}",
                                       printable(path), number, printable(word), kMostSlots));
      }
      if (key == "slots") slots = value;
    }
    const auto same = std::ranges::find(hosts, name, &Host::name);
    if (slots < 0) slots = 1;
    if (same == hosts.end()) {
      hosts.push_back({name, slots});
    } else {
      same->slots = std::min(kMostSlots, same->slots + slots);
    }
  }
  std::erase_if(hosts, [](const Host& host) { return host.slots == 0; });
  if (hosts.empty()) throw RequestError(printable(path) + ": names no host with slots");
  return hosts;
}

namespace {

std::string there_are(std::int64_t count) {
  return count == 1 ? "is 1" : fmt::format("are {}", count);
}

// The number of ranks for "auto"; the start itself chooses their layout.
Ranks ranks_of_auto(const ConfigRequest& request, std::optional<std::int64_t> least,
                    std::optional<std::int64_t> most, std::optional<std::int64_t> available) {
  std::optional<std::int64_t> count = available;
  for (const auto& limit : {most, least || most ? std::nullopt : request.ranks}) {
    if (limit && (!count || *limit < *count)) count = limit;
  }
  if (!count) {
    throw RequestError(
        "config: /parallel: \"auto\" needs the number of ranks; give --ranks, --max-ranks or a "
        "--hostfile");
  }
  const std::int64_t needed = least || most ? least.value_or(1) : request.ranks.value_or(1);
  if (*count < needed) {
    throw RequestError(fmt::format("{} ranks are asked for, there {}", needed, there_are(*count)));
  }
  return {.count = *count, .pass_ranks_option = true};
}

}  // namespace

Ranks choose_ranks(const ConfigRequest& request, std::optional<std::int64_t> least,
                   std::optional<std::int64_t> most, std::optional<std::int64_t> available) {
  if (least && most && *least > *most) {
    throw RequestError(fmt::format("--min-ranks: {} is more than --max-ranks ({})", *least, *most));
  }
  if (available && *available < least.value_or(1)) {
    throw RequestError(*available == 0
                           ? std::string("there are no ranks: no host or device is available")
                           : fmt::format("--min-ranks: {} are asked for, there {}", *least,
                                         there_are(*available)));
  }
  if (chooses_layout(request)) return ranks_of_auto(request, least, most, available);
  if (!least && !most) {
    const std::int64_t count = load(request, Launch{}).config.world_size();
    if (!available || count <= *available) {
      return {.count = count, .pass_ranks_option = request.ranks.has_value()};
    }
    throw RequestError(fmt::format("the config needs {} ranks, there {}; --min-ranks allows fewer",
                                   count, there_are(*available)));
  }
  std::optional<std::int64_t> top = most;
  if (available) top = std::min(top.value_or(*available), *available);
  if (!top) top = load(request, Launch{}).config.world_size();
  const std::int64_t bottom = std::max<std::int64_t>(1, least.value_or(1));
  if (bottom > *top) {
    throw RequestError(
        fmt::format("--min-ranks: {} is more than the config's {}; --max-ranks allows more", bottom,
                    counted(*top, "rank")));
  }
  // One data-parallel replica takes `unit` ranks, and at least one sample of each batch.
  std::int64_t unit = 1, places = *top;
  std::string why;
  try {
    ConfigRequest one = request;
    one.least_data_parallel = true;
    one.ranks.reset();
    const Config config = load(one, Launch{}).config;
    unit = config.world_size();
    places = std::min(*top / unit, config.batch.global_batch_size);
  } catch (const RequestError& error) {
    why = error.what();
  }
  if (places < 1 && why.empty()) {
    throw RequestError(
        fmt::format("the config's other parallel sizes take {} ranks, and there may be {} at most",
                    unit, *top));
  }
  for (; places >= 1 && places * unit >= bottom; --places) {
    ConfigRequest asked = request;
    asked.set.emplace_back(size_follows_ranks);
    asked.ranks = places * unit;
    try {
      load(asked, Launch{});
      return {.count = places * unit, .adapted = true, .pass_ranks_option = true};
    } catch (const RequestError& error) {
      if (why.empty()) why = error.what();
    }
  }
  throw RequestError(fmt::format("no number of ranks from {} to {} goes with this config{}", bottom,
                                 *top, why.empty() ? "" : ":\n" + why));
}

}  // namespace trident

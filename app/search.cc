// `search`: predicts the best layouts of a config on a machine, which needn't be at hand.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/options.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/printable.h"
#include "engine/setup/registry.h"
#include "planner/plan/fit.h"
#include "planner/search/layout_search.h"

namespace trident::app {
namespace {

constexpr std::int64_t most_ranks = std::int64_t{1} << 20;

struct SearchOptions {
  std::string config, machine, assume, format = "text", out;
  std::vector<std::string> set;
  std::vector<std::int64_t> ranks;
  std::optional<std::string> memory;
  std::size_t wanted = 10;
};

std::vector<std::int64_t> ranks_of(const std::string& list) {
  std::vector<std::int64_t> ranks;
  for (const std::string& item : items_of("--ranks", list)) {
    std::int64_t count = 0;
    const char* const end = item.data() + item.size();
    const auto [stop, error] = std::from_chars(item.data(), end, count);
    if (error != std::errc{} || stop != end || count < 1 || count > most_ranks) {
      throw RequestError(fmt::format("--ranks: \"{}\": needs a number from 1 to {}",
                                     printable(item, 40), most_ranks));
    }
    ranks.push_back(count);
  }
  return ranks;
}

LayoutRequest request_of(const SearchOptions& options, const Launch& launch) {
  LayoutRequest request{.machine = read_machine(options.machine, machines_folder())};
  request.assume = options.assume;
  request.wanted = options.wanted;
  request.threads = launch.cores;
  request.progress = search_progress();
  if (options.memory) request.memory = parse_memory(*options.memory);
  const Machine& machine = request.machine;
  ConfigRequest config{options.config, options.set, {}};
  plan_for(machine, config);
  config.layouts.reset();  // the search itself chooses the layout
  const auto memory = static_cast<std::int64_t>(machine.device.memory);
  LoadedConfig base;
  try {
    base = load(config, launch, memory);
  } catch (const RequestError&) {  // "auto" needs a number of ranks
    if (options.ranks.empty()) throw;
    config.ranks = options.ranks.front();
    base = load(config, launch, memory);
  }
  request.written = base.written;
  request.global_batch_size = base.config.batch.global_batch_size;
  request.load = {.constraints = built_in_constraints(),
                  .cores = launch.cores,
                  .micro_batch_size = base.config.batch.micro_batch_size,
                  .device = machine.device.gpu ? "cuda" : "cpu",
                  .saved_model = saved_model_section};
  if (base.parallel_is_auto) {
    need_batch(base);
    request.held = given_keys(base);
  } else if (constexpr auto key = "zero_optimization.reduce_each_micro_batch";
             is_written(base.written, "/zero_optimization/reduce_each_micro_batch")) {
    request.held.emplace_back(
        key);  // this key doesn't depend on the layout: it changes the rounding of sums
  }
  request.ranks = options.ranks;
  if (request.ranks.empty()) {
    request.ranks.push_back(machine.nodes > 0 || base.parallel_is_auto ? machine.all_devices()
                                                                       : base.config.world_size());
  }
  if (request.ranks.back() > most_ranks) {
    throw RequestError(
        fmt::format("--ranks: {}: give at most {}", request.ranks.back(), most_ranks));
  }
  std::sort(request.ranks.begin(), request.ranks.end());
  request.ranks.erase(std::unique(request.ranks.begin(), request.ranks.end()), request.ranks.end());
  return request;
}

int search(const SearchOptions& options, const Launch& launch) {
  launch.start->join("search");
  need_writable("--out", options.out);
  const LayoutRequest request = request_of(options, launch);
  std::optional<LayoutSearch> found;
  if (launch.leads) found = search_layouts(request);
  launch.start->agree({});
  launch.start->done();
  if (!found) return 0;
  if (!options.out.empty()) {
    write_file(options.out,
               nlohmann::ordered_json::parse(found->plans.front().written).dump(2) + "\n");
  }
  if (options.format == "json") {
    fmt::print("{}\n", layouts_json(*found, request).dump(2));
  } else {
    fmt::print("{}", layouts_text(*found, request));
    if (!options.out.empty()) fmt::print("wrote {}: the first of these, for train\n", options.out);
  }
  return 0;
}

}  // namespace

void add_search(CLI::App& app, const Launch& launch, Action& action) {
  auto* command =
      app.add_subcommand("search", "Find the best layouts of a config on a machine, predicted");
  auto options = std::make_shared<SearchOptions>();
  command->add_option("config", options->config, "The JSON config (docs/config.md)")->required();
  command->add_option("--set", options->set, "Override a key: a.b=value (JSON, else a string)")
      ->allow_extra_args(false);
  command
      ->add_option("--machine", options->machine,
                   "A machine's JSON file, or the name of one in configs/machines")
      ->required();
  command
      ->add_option_function<std::string>(
          "--ranks", [options](const std::string& list) { options->ranks = ranks_of(list); },
          "Ranks, or several numbers of them: 64,128; else all of the machine's nodes, or "
          "as many as the config has")
      ->type_name("INT,...");
  command->add_option("--memory", options->memory,
                      "Memory a rank, such as 24GiB, instead of the machine's");
  command->add_option("--assume", options->assume,
                      "Differences of another program from this one, as in simulate --assume");
  command
      ->add_option("--plans", options->wanted,
                   "Number of layouts to print for each number of ranks, the fastest first")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--out", options->out, "A file that gets the best one's config, for train");
  add_format_option(*command, options->format);
  command->callback([options, &launch, &action] {
    action = [options, &launch] { return search(*options, launch); };
  });
}

}  // namespace trident::app

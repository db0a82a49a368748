// `bench gemm|collectives|machine|step`: measures the speed of this machine.
#include "run/measurement/bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "app/options.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/process/process.h"
#include "kernels/cuda_device.h"
#include "planner/search/grid.h"
#include "run/startup/bf16_products.h"

namespace trident::app {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  ConfigRequest config;
  std::string format = "text", device = "auto";
  int threads = 0, ranks = 2, iterations = 5, rounds = 3;
  std::string grid, out;
  std::int64_t largest = std::int64_t{64} << 20;
  bool balanced_routing = false;
};

struct Bench {
  const char *name, *about;
  void (*add_options)(CLI::App&, BenchOptions&);
  Json (*measure)(const BenchOptions&, const Launch&);
  std::string (*text)(const Json&);
};

void add_gemm_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--device", options.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command.add_option("--threads", options.threads, "0: all cores");
}

Json measure_gemm(const BenchOptions& options, const Launch& launch) {
  const bool cuda = options.device == "cuda" || (options.device == "auto" && find_gpus().count > 0);
  return bench_gemm(Devices(cuda ? "cuda" : "cpu", "--device"),
                    options.threads > 0 ? options.threads : launch.cores);
}

void add_collectives_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--ranks", options.ranks, "In-process ranks")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  command.add_option("--max-bytes", options.largest, "Size of the largest message")
      ->check(CLI::Range(std::int64_t{4} << 10, std::int64_t{64} << 20))
      ->capture_default_str();
}

Json measure_collectives(const BenchOptions& options, const Launch& launch) {
  launch.start->join("bench collectives");
  launch.start->agree({{"--max-bytes", std::to_string(options.largest), "give all the same"}});
  launch.start->done();
  const Print print = [](const std::string& line) {
    fmt::print("{}", line);
    std::fflush(stdout);
  };
  const Print shown = options.format == "text" ? print : nullptr;
  return launch.mpi ? bench_collectives_mpi(options.largest, shown)
                    : bench_collectives(options.ranks, options.largest, shown);
}

void add_machine_options(CLI::App& command, BenchOptions& options) {
  add_config_options(command, options.config);
  command.add_option("--grid", options.grid,
                     "Layouts whose ranks are measured, as of sweep; by default the config's own");
  command.add_option("--out", options.out,
                     "File to write; kernels that it has already stay and are measured anew where "
                     "these layouts run them");
  command
      .add_option("--iterations", options.iterations,
                  "Iterations of each rank and round; the median of each kernel counts")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command
      .add_option("--rounds", options.rounds,
                  "Passes over all layouts, since a machine's speed drifts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

Json measure_machine(const BenchOptions& options, const Launch& launch) {
  if (launch.mpi) {
    throw RequestError(
        "trident bench machine: runs its ranks itself; start it without mpirun or srun");
  }
  need_writable("--out", options.out);
  launch.start->join("bench machine");
  const LoadedConfig base = load_reported(options.config, launch);
  MachineRequest request{
      .cores = launch.cores, .iterations = options.iterations, .rounds = options.rounds};
  for (const GridPoint& point :
       options.grid.empty()
           ? std::vector<GridPoint>{{}}
           : grid_points(parse_grid(grid_text(options.grid), base.config.parallel))) {
    try {
      request.configs.push_back(
          parse_config(base.written, point.set,
                       load_options(base.config.batch, base.config.runtime, launch))
              .config);
    } catch (const RequestError& error) {
      if (options.grid.empty()) throw;
      print_error(fmt::format("{}: left out: {}", point.label, error.problems().front()));
    }
  }
  if (request.configs.empty()) throw RequestError("--grid: no layout is valid");
  if (!options.out.empty() && std::filesystem::exists(options.out)) {
    request.known = parse_machine(read_file(options.out), options.out);
  }
  if (options.format == "text") {
    request.report = [](const std::string& line) {
      fmt::print("{}", line);
      std::fflush(stdout);
    };
  }
  const std::string text = machine_text(bench_machine(request));
  if (!options.out.empty()) write_file_atomic(options.out, text);
  return Json::parse(text);
}

std::string machine_summary(const Json& machine) {
  return bench_machine_text(parse_machine(machine.dump(), "bench machine"));
}

void add_step_options(CLI::App& command, BenchOptions& options) {
  add_config_options(command, options.config);
  command.add_option("--iterations", options.iterations, "Timed steps; the median counts")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command.add_flag("--balanced-routing", options.balanced_routing,
                   "Tokens take a model's experts in turn, whatever its router says");
}

Json measure_step(const BenchOptions& options, const Launch& launch) {
  launch.start->join("bench step");
  ConfigRequest request = options.config;
  choose_layouts_here(request, launch);
  const LoadedConfig loaded = load_reported(request, launch);
  if (!loaded.why_layout.empty()) fmt::print(stderr, "{}\n", loaded.why_layout);
  Config config = loaded.config;
  const Bf16Choice products = choose_bf16_products(config, "", bf16_machine(config, launch));
  if (!products.text.empty()) fmt::print(stderr, "{}\n", products.text);
  config.runtime.bf16_products = products.way;
  if (options.balanced_routing && !config.model.moe.has_experts()) {
    throw RequestError("--balanced-routing: the model has no experts (model.moe.num_experts)");
  }
  config.model.moe.balanced_routing = options.balanced_routing;
  return bench_step(config, options.iterations);
}

constexpr Bench benches[] = {
    {"gemm", "Products by dtype and shape", add_gemm_options, measure_gemm, bench_gemm_text},
    {"collectives", "All-reduce by algorithm and size, between in-process ranks or those of mpirun",
     add_collectives_options, measure_collectives, bench_collectives_text},
    {"machine", "A machine file for simulate, search and sweep: kernels as layouts run them, links",
     add_machine_options, measure_machine, machine_summary},
    {"step", "A training step on random tokens", add_step_options, measure_step, bench_step_text}};

}  // namespace

void add_bench(CLI::App& app, const Launch& launch, Action& action) {
  auto* command = app.add_subcommand("bench", "Measure this machine");
  command->require_subcommand(1);
  for (const Bench& bench : benches) {
    auto* one = command->add_subcommand(bench.name, bench.about);
    auto options = std::make_shared<BenchOptions>();
    add_format_option(*one, options->format);
    bench.add_options(*one, *options);
    one->callback([&bench, options, &launch, &action] {
      action = [&bench, options, &launch] {
        const Json result = bench.measure(*options, launch);
        if (launch.leads) {
          fmt::print("{}\n", options->format == "json" ? result.dump(2) : bench.text(result));
        }
        return 0;
      };
    });
  }
}

}  // namespace trident::app

// `bench gemm|collectives|step`: this machine's speed, measured now.
#include "training/bench/bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/options.h"
#include "kernels/cuda_device.h"

namespace trident::app {

void add_bench(CLI::App& app, const Launch& launch, Action& action) {
  struct Options {
    ConfigOptions config;
    std::string format = "text", device = "auto";
    int threads = 0, ranks = 2, iterations = 5;
    std::int64_t largest = std::int64_t{64} << 20;
  };
  auto* bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  const auto add = [&](const char* name, const char* about,
                       std::function<nlohmann::ordered_json(const Options&)> measure,
                       std::function<std::string(const nlohmann::ordered_json&)> text) {
    auto* command = bench->add_subcommand(name, about);
    auto options = std::make_shared<Options>();
    add_format_option(*command, options->format);
    command->callback([=, &launch, &action] {
      action = [=] {
        const nlohmann::ordered_json result = measure(*options);
        if (launch.leads) {
          fmt::print("{}\n", options->format == "json" ? result.dump(2) : text(result));
        }
        return 0;
      };
    });
    return std::pair(command, options);
  };
  const int cores = launch.cores;
  {
    auto [command, options] = add(
        "gemm", "Products by dtype and shape",
        [cores](const Options& o) {
          const bool cuda = o.device == "cuda" || (o.device == "auto" && find_gpus().count > 0);
          return bench_gemm(Devices(cuda ? "cuda" : "cpu", "--device"),
                            o.threads > 0 ? o.threads : cores);
        },
        bench_gemm_text);
    command->add_option("--device", options->device, "auto, cpu or cuda")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
        ->capture_default_str();
    command->add_option("--threads", options->threads, "0: all cores");
  }
  {
    auto [command, options] = add(
        "collectives",
        "All-reduce by algorithm and size, between in-process ranks or those of mpirun",
        [&launch](const Options& o) {
          launch.start->join("bench collectives");
          launch.start->agree({{"--max-bytes", std::to_string(o.largest), "give all the same"}});
          launch.start->done();
          const Print print = [](const std::string& line) {
            fmt::print("{}", line);
            std::fflush(stdout);
          };
          const Print shown = o.format == "text" ? print : nullptr;
          return launch.mpi ? bench_collectives_mpi(o.largest, shown)
                            : bench_collectives(o.ranks, o.largest, shown);
        },
        bench_collectives_text);
    command->add_option("--ranks", options->ranks, "In-process ranks")
        ->check(CLI::Range(2, 64))
        ->capture_default_str();
    command->add_option("--max-bytes", options->largest, "Of the largest message")
        ->check(CLI::Range(std::int64_t{4} << 10, std::int64_t{64} << 20))
        ->capture_default_str();
  }
  {
    auto [command, options] = add(
        "step", "A training step on random tokens",
        [&launch](const Options& o) {
          launch.start->join("bench step");
          return bench_step(load(o.config, launch).config, o.iterations);
        },
        bench_step_text);
    add_config_options(*command, options->config);
    command->add_option("--iterations", options->iterations, "Timed steps; the median counts")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
  }
}

}  // namespace trident::app

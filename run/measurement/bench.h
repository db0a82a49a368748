// Measurements of this machine for `trident bench` and `trident train --pretend-world`, and the
// JSON that these commands print. The functions start their ranks themselves, except
// bench_collectives_mpi(), which every process of the job calls.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/machine/machine.h"
#include "run/processes/devices.h"
#include "settings/config.h"

namespace trident {

// Measures matrix products: GFLOP/s by dtype and shape on the first device, with `threads` threads
// on a CPU.
nlohmann::ordered_json bench_gemm(const Devices&, int threads);
std::string bench_gemm_text(const nlohmann::ordered_json&);

// Measures collectives by message size up to `largest` bytes: all-reduce by algorithm,
// reduce-scatter, all-gather and broadcast. Also measures the bound that the memory bandwidth sets.
// GB/s are message bytes over time; times are the slowest rank's medians. The first function uses
// `ranks` in-process ranks, the second the processes of mpirun or srun (collective over them).
// `print` gets each line of the table on rank 0 as soon as it is measured; may be empty. A row
// takes at most about a second, or one call. Sizes whose call would take several seconds are left
// out.
using Print = std::function<void(const std::string&)>;
nlohmann::ordered_json bench_collectives(int ranks, std::int64_t largest, const Print& print = {});
nlohmann::ordered_json bench_collectives_mpi(std::int64_t largest, const Print& print = {});
// Measures only the links, in a few seconds, for a machine's file: the time of an all-reduce by
// size, and the rate of copies (keys "all_reduce" and "copy_gb_per_second" as above).
nlohmann::ordered_json bench_links(int ranks);
// The last lines of the table.
std::string bench_collectives_text(const nlohmann::ordered_json&);

struct MachineRequest {
  std::vector<Config> configs;  // all with the same device and threads a rank
  int cores = 1;                // cores that all ranks may use together
  int iterations = 5;           // per rank and round; the median of each kernel counts
  int rounds = 3;               // passes over all configs, since a machine's speed drifts
  // Time limit of the measurement; 0: none. Skips a rank whose measurement would probably exceed
  // the limit, but always measures the first rank.
  double seconds = 0;
  Machine known;      // an earlier result; its kernels are kept
  Print report = {};  // gets a line for each measured rank
};
// Measures this machine for the planner: the kernels that ranks of these configs run at each place
// of the pipeline, the peak rate of products, the bandwidth of copies, and the links between
// in-process ranks. While a kernel is measured, all devices run it: a device is as many cores as a
// rank has threads. On GPUs only one GPU is measured, and no links: the links of `known` stay,
// otherwise a copy within the GPU stands for them. RequestError where the configs differ in device
// or threads, don't fit this machine, or `known` describes another device.
Machine bench_machine(const MachineRequest&);
std::string bench_machine_text(const Machine&);
// The same, but keeps the result in a file of `folder` and measures only once for the same device,
// cores and configs. "" keeps nothing. A folder that can't be read or written, or a damaged file,
// is no error.
Machine kept_machine(const MachineRequest&, const std::string& folder);

// Runs one `rank` of the config's world without the others (RankPlanner::measure). Reports the time
// of each kernel, the bytes that groups would send, and the ledger beside the planned memory. Adds
// the kernels to `machine` unless it is nullptr. RequestError where the world has no such rank, or
// where `machine` describes another device.
nlohmann::ordered_json pretend_rank(const Config&, int rank, int iterations, Machine* machine);
std::string pretend_rank_text(const nlohmann::ordered_json&);

// Measures training steps of `config` on random tokens with in-process ranks: the median of
// `iterations` steps after two warm-up steps. MFU is model FLOP/s over the best product rate. That
// is the best rate of this dtype measured here on as many threads, or reached by a step; on a GPU
// it is the maker's figure where that is known.
nlohmann::ordered_json bench_step(const Config&, int iterations);
std::string bench_step_text(const nlohmann::ordered_json&);

}  // namespace trident

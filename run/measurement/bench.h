// Measurements of this machine for `trident bench`, and the JSON that it prints.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/machine/machine.h"
#include "run/launch/devices.h"
#include "settings/config.h"

namespace trident {

// GFLOP/s by dtype and shape on the first device, `threads` threads of a CPU.
nlohmann::ordered_json bench_gemm(const Devices&, int threads);
std::string bench_gemm_text(const nlohmann::ordered_json&);

// All-reduce by algorithm, reduce-scatter, all-gather and broadcast by message size up to `largest`
// bytes, GB/s as message bytes over time, and the bound that memory sets: between `ranks`
// in-process ranks, or between the processes of mpirun or srun (every process calls it). Times are
// the slowest rank's medians.
// `print` gets the table's lines on rank 0, each as soon as it is measured; may be empty. A row
// takes about a second at most, or one call; sizes whose call would take several are left out.
using Print = std::function<void(const std::string&)>;
nlohmann::ordered_json bench_collectives(int ranks, std::int64_t largest, const Print& print = {});
nlohmann::ordered_json bench_collectives_mpi(std::int64_t largest, const Print& print = {});
// What a machine's file has of it: the time of an all-reduce by size, and copies' rate, in a few
// seconds (keys "all_reduce" and "copy_gb_per_second" as above).
nlohmann::ordered_json bench_links(int ranks);
// What the table ends with.
std::string bench_collectives_text(const nlohmann::ordered_json&);

struct MachineRequest {
  std::vector<Config> configs;  // one device and as many threads a rank for all of them
  int cores = 1;                // that ranks may use together
  int iterations = 5;           // of each rank and round; the median of each kernel counts
  int rounds = 3;               // through all configs, since machines drift
  // The measurement's limit: a rank isn't measured where that would probably pass it. The first one
  // always is. 0: no limit.
  double seconds = 0;
  Machine known;    // kernels that were measured before stay
  Print tell = {};  // a line for each config
};
// This machine as planner has machines: the kernels that ranks of these configs run, at each
// place of a pipeline, measured while all devices (cores by threads of a rank, or one GPU) run the
// same; products' peak, copies' bandwidth, and links between in-process ranks. On GPUs one of them
// is measured, and links aren't: those of `known` stay, else they are a copy's. RequestError where
// configs don't go together or don't fit here, or `known` is of another device.
Machine bench_machine(const MachineRequest&);
std::string bench_machine_text(const Machine&);
// The same, measured once: a file of `folder`, by the device, the cores and the configs, keeps it.
// A folder that can't be read or written ("": none), or a damaged file, is no error.
Machine kept_machine(const MachineRequest&, const std::string& folder);

// `rank` of the config's world by itself, as planner/plan runs it (RankPlanner::measure): what
// each kernel took, what groups would send, the ledger beside the plan. Its kernels go into
// `machine`, where there is one. RequestError where the world has no such rank.
nlohmann::ordered_json pretend_rank(const Config&, int rank, int iterations, Machine* machine);
std::string pretend_rank_text(const nlohmann::ordered_json&);

// The median of `iterations` training steps of `config` on random tokens, in-process ranks, after
// two that aren't counted. MFU is model FLOPs over the best product rate of that dtype that was
// measured in this run on as many threads, or reached by a step.
nlohmann::ordered_json bench_step(const Config&, int iterations);
std::string bench_step_text(const nlohmann::ordered_json&);

}  // namespace trident

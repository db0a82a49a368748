// Measurements of this machine for `trident bench`, and the JSON that it prints.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/config.h"
#include "training/run/devices.h"

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
// What the table ends with.
std::string bench_collectives_text(const nlohmann::ordered_json&);

// The median of `iterations` training steps of `config` on random tokens, in-process ranks, after
// two that aren't counted. MFU is model FLOPs over the product rate of that dtype, measured in this
// run on as many threads.
nlohmann::ordered_json bench_step(const Config&, int iterations);
std::string bench_step_text(const nlohmann::ordered_json&);

}  // namespace trident

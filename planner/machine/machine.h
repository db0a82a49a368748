// The model of a machine that the planner predicts for: the compute rates of its devices and the
// capacity of its links. The machine need not be available. Its files are configs/machines/*.json.
//
// Units: bytes, seconds, FLOP (a product of m × n × k has 2mnk).
//
// The functions have no shared state; any thread may call them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace trident {

// A measured kernel.
struct MeasuredKernel {
  std::array<double, 3> size = {};  // product: m, n, k; attention: FLOPs, bytes; others: bytes
  double seconds = 0;
};

struct Machine {
  struct Device {
    std::string name;
    bool gpu = true;                    // "kind": "gpu" or "cpu"
    double memory = 0;                  // bytes
    double memory_bandwidth = 0;        // bytes/s, for reads and writes
    std::map<DType, double> peak = {};  // FLOP/s of products with operands of that type
    std::int64_t units = 1;             // multiprocessors that share the tiles of a product
    double launch = 0;                  // seconds that each kernel takes in addition to its work
    // The share of its compute rate that a concurrent collective takes (NCCL's kernels hold
    // multiprocessors), 0 to 1.
    double taken_by_collectives = 0;
    // The extra time that the slowest rank's kernels take between two collectives within layers, as
    // a fraction of the ranks' average; measured.
    double skew = 0;
    // By name and type, "gelu_forward bf16", "gemm nt fp32" (the letters say which operand is
    // transposed: nn, nt for x · Wᵀ, tn), or "gemm fp32" for all of them. Measured kernels replace
    // predictions from peak, units and bandwidth.
    std::map<std::string, std::vector<MeasuredKernel>, std::less<>> kernels = {};
  };
  struct Link {
    double bandwidth = 0;  // bytes/s, each direction
    double latency = 0;    // seconds of one message
  };
  // The fractions of the peaks that a step reaches: at most three numbers, fitted to measured
  // steps.
  struct Efficiency {
    double products = 1, memory = 1, links = 1;
  };

  // The error of this machine's predictions, as a fraction of the measured steps that they were
  // compared with: the mean and the largest. `of` names these steps; it is empty if there are none.
  struct Error {
    double usual = 0, most = 0;
    std::string of = {};
  };

  std::string name, source;  // source: the origin of the numbers
  Device device;
  std::int64_t devices_per_node = 1;
  std::int64_t nodes = 0;  // 0: unlimited
  Link inside;             // from a device to others of its node
  Link across;             // from a node to others; all its devices share it
  Efficiency efficiency;
  Error error;

  // Returns the FLOP/s of that type. Throws RequestError where the machine's file has no rate for
  // it.
  double peak_of(DType dtype) const;
  // Returns the number of devices. Throws RequestError where the number of nodes is unlimited.
  std::int64_t all_devices() const;
  // The largest value of an efficiency: 1, or 8 where kernels were measured, since they may have
  // been measured while the machine was slow.
  double most_efficiency() const { return device.kernels.empty() ? 1 : 8; }
};

// Parses JSON. Throws RequestError with all problems, each "NAME: /device/memory: problem": unknown
// and missing keys, wrong types, numbers that aren't positive (latencies and device shares may be
// 0).
Machine parse_machine(std::string_view text, const std::string& name);
// Reads a file. A name without a slash and without ".json" stands for a file of `folder`. Throws
// RequestError where the file doesn't exist, with the names in `folder`, the nearest first.
Machine read_machine(const std::string& path, const std::string& folder);
// Combines several measurements of one machine: the median of each kernel and of each other number.
Machine median_of(const std::vector<Machine>&);
// Returns the text of the machine's file, with each kernel on its own line.
std::string machine_text(const Machine&);

}  // namespace trident

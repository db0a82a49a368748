// A machine that nobody needs to have at hand: what its devices compute, what its links carry.
// Files: configs/machines/*.json.
//
// Units: bytes, seconds, FLOP (a product of m × n × k has 2mnk).
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

// A kernel that was measured.
struct MeasuredKernel {
  std::array<double, 3> size = {};  // m, n and k of a product; FLOPs and bytes of attention; bytes
  double seconds = 0;
};

struct Machine {
  struct Device {
    std::string name;
    bool gpu = true;                    // "kind": "gpu" or "cpu"
    double memory = 0;                  // bytes
    double memory_bandwidth = 0;        // bytes/s, read or written
    std::map<DType, double> peak = {};  // FLOP/s of products whose operands have that type
    std::int64_t units = 1;  // multiprocessors among which the tiles of a product are dealt
    double launch = 0;       // seconds that each kernel takes beside its work
    // The part of its computing that a collective beside it takes (NCCL's kernels hold
    // multiprocessors), 0 to 1.
    double taken_by_collectives = 0;
    // By how much more the last of ranks that meet again and again within layers needs for its
    // kernels than they do on average, as a part of that; measured.
    double skew = 0;
    // By name and type, "gelu_forward bf16", "gemm nt fp32" (which operand of a product is
    // transposed: nn, nt for x · Wᵀ, tn), or "gemm fp32" for all; they stand in for peak, units and
    // bandwidth.
    std::map<std::string, std::vector<MeasuredKernel>, std::less<>> kernels = {};
  };
  struct Link {
    double bandwidth = 0;  // bytes/s, each direction
    double latency = 0;    // seconds of a message
  };
  // What is reached of the peaks: at most three numbers that are fitted to measured steps.
  struct Efficiency {
    double products = 1, memory = 1, links = 1;
  };

  // How far predictions for it were off, as parts of the measured steps they were held against: in
  // the mean, and at most. `of`: which steps; "": none.
  struct Error {
    double usual = 0, most = 0;
    std::string of = {};
  };

  std::string name, source;  // source: where the numbers are from
  Device device;
  std::int64_t devices_per_node = 1;
  std::int64_t nodes = 0;  // 0: as many as are asked for
  Link inside;             // of a device, to others of its node
  Link across;             // of a node, which all its devices share
  Efficiency efficiency;
  Error error;

  // FLOP/s of that type. RequestError where the machine's file has none.
  double peak_of(DType dtype) const;
  // All that it has. RequestError where it may have any number of nodes.
  std::int64_t all_devices() const;
  // That an efficiency may have: a part, or more where kernels were measured, maybe in a slow
  // moment.
  double most_efficiency() const { return device.kernels.empty() ? 1 : 8; }
};

// From JSON. RequestError with all problems, each "NAME: /device/memory: problem": unknown and
// missing keys, wrong types, numbers that aren't positive (or 0, of latencies and device shares).
Machine parse_machine(std::string_view text, const std::string& name);
// Of a file; a name without a slash or an ending is one of `folder`. RequestError where there is
// none, with those of `folder`, the nearest first.
Machine read_machine(const std::string& path, const std::string& folder);
// Of one machine that was measured several times: the median of each kernel and of all else.
Machine median_of(const std::vector<Machine>&);
// The same as a file, kernels a line each.
std::string machine_text(const Machine&);

}  // namespace trident

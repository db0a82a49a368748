// A machine that nobody needs to have at hand: what its devices compute, what its links carry.
// Files: configs/machines/*.json.
//
// Units: bytes, seconds, FLOP (a product of m × n × k has 2mnk).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace trident {

// A product that was measured.
struct MeasuredProduct {
  DType dtype = DType::f32;
  std::int64_t m = 0, n = 0, k = 0;
  double flops_per_second = 0;
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
    // Rates by shape, where they were measured; they stand in for peak and units.
    std::vector<MeasuredProduct> products = {};
  };
  struct Link {
    double bandwidth = 0;  // bytes/s, each direction
    double latency = 0;    // seconds of a message
  };
  // What is reached of the peaks: at most three numbers that are fitted to measured steps.
  struct Efficiency {
    double products = 1, memory = 1, links = 1;
  };

  std::string name, source;  // source: where the numbers are from
  Device device;
  std::int64_t devices_per_node = 1;
  std::int64_t nodes = 0;  // 0: as many as are asked for
  Link inside;             // of a device, to others of its node
  Link across;             // of a node, which all its devices share
  Efficiency efficiency;

  // FLOP/s of that type. RequestError where the machine's file has none.
  double peak_of(DType dtype) const;
};

// From JSON. RequestError with all problems, each "NAME: /device/memory: problem": unknown and
// missing keys, wrong types, numbers that aren't positive.
Machine parse_machine(std::string_view text, const std::string& name);
// Of a file; a name without a slash or an ending is one of `folder`.
Machine read_machine(const std::string& path, const std::string& folder);

}  // namespace trident

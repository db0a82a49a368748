#include "planner/machine/operation_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace trident {
namespace {

double by_bytes(const Machine& machine, double bytes) {
  return bytes / (machine.device.memory_bandwidth * machine.efficiency.memory);
}

using Measured = std::vector<MeasuredKernel>;

const Measured* measured(const Machine& machine, std::string_view name) {
  const auto found = machine.device.kernels.find(name);
  return found == machine.device.kernels.end() || found->second.empty() ? nullptr : &found->second;
}

double apart(double a, double b) {
  return std::abs(std::log2(a / b));
}

// Predicts a size that wasn't measured. Its pace is the weighted mean of the three nearest sizes,
// by the logarithms; nearer ones weigh more.
template <class Work>
double by_nearest(const Measured& known, const std::array<double, 3>& size, Work work) {
  struct Near {
    // `pace`: seconds per unit of work.
    double distance = std::numeric_limits<double>::infinity(), pace = 0;
  };
  std::array<Near, 3> nearest;
  for (const MeasuredKernel& one : known) {
    Near here{.pace = one.seconds / work(one.size)};
    here.distance = 0;
    for (std::size_t i = 0; i < size.size(); ++i) {
      if (size[i] > 0 && one.size[i] > 0) here.distance += apart(size[i], one.size[i]);
    }
    for (Near& near : nearest) {
      if (here.distance < near.distance) std::swap(here, near);
    }
  }
  double weights = 0, sum = 0;
  for (const Near& near : nearest) {
    if (near.pace == 0) continue;
    const double weight = 1 / (near.distance * near.distance + 1e-6);
    weights += weight, sum += weight * near.pace;
  }
  return sum / weights * work(size);
}

// Interpolates between the next smaller and the next larger size, linearly in the logarithms.
// Beyond the measured sizes, a byte costs as much as in the last one.
double by_bytes_of(const Measured& known, double bytes) {
  const MeasuredKernel *below = nullptr, *above = nullptr;
  for (const MeasuredKernel& one : known) {
    if (one.size[0] <= bytes && (below == nullptr || one.size[0] > below->size[0])) below = &one;
    if (one.size[0] >= bytes && (above == nullptr || one.size[0] < above->size[0])) above = &one;
  }
  if (below == nullptr || above == nullptr) {
    const MeasuredKernel& last = below != nullptr ? *below : *above;
    return last.seconds * bytes / last.size[0];
  }
  if (below->size[0] == above->size[0]) return below->seconds;
  const double at = std::log(bytes / below->size[0]) / std::log(above->size[0] / below->size[0]);
  return below->seconds * std::pow(above->seconds / below->seconds, at);
}

struct Tile {
  double rows, columns;
  // The efficiency relative to the largest tile. Reading the operands costs time for each FLOP.
  double efficiency() const {
    constexpr double reading = 25;  // FLOPs that take as long as reading an element of an operand
    constexpr double largest = 1 + reading * (1.0 / 256 + 1.0 / 128);
    return largest / (1 + reading * (1 / rows + 1 / columns));
  }
};

double tiled_seconds(const Machine& machine, DType dtype, double m, double n, double k,
                     double batch) {
  constexpr std::array<Tile, 6> tiles{
      {{128, 256}, {256, 128}, {128, 128}, {64, 128}, {128, 64}, {64, 64}}};
  constexpr double begin = 50;  // start-up time of a tile, in elements of k
  const double rate = machine.peak_of(dtype) * machine.efficiency.products;
  const auto units = static_cast<double>(machine.device.units);
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : tiles) {
    const double count = batch * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    const double rounds = std::ceil(count / units);
    const double flops = rounds * units * 2 * tile.rows * tile.columns * (k + begin);
    best = std::min(best, flops / (rate * tile.efficiency()));
  }
  return best;
}

std::string_view form_of(const TracedOperation& product) {
  if (product.transpose_a) return product.transpose_b ? "tt" : "tn";
  return product.transpose_b ? "nt" : "nn";
}

}  // namespace

double product_seconds(const Machine& machine, DType dtype, std::int64_t m, std::int64_t n,
                       std::int64_t k, std::int64_t batch, std::string_view form) {
  const auto [rows, columns, depth, many] =
      std::array{static_cast<double>(m), static_cast<double>(n), static_cast<double>(k),
                 static_cast<double>(batch)};
  const Measured* known = measured(machine, fmt::format("gemm {} {}", form, name_of(dtype)));
  if (known == nullptr) known = measured(machine, fmt::format("gemm {}", name_of(dtype)));
  if (known != nullptr) {
    const double one = by_nearest(*known, {rows, columns, depth},
                                  [](const auto& size) { return size[0] * size[1] * size[2]; });
    return many * one / machine.efficiency.products + machine.device.launch;
  }
  const auto width = static_cast<double>(size_of(dtype)) * many;
  const double read = by_bytes(machine, width * (rows * depth + depth * columns));
  const double written = by_bytes(machine, width * rows * columns);
  return std::max(read, tiled_seconds(machine, dtype, rows, columns, depth, many)) + written +
         machine.device.launch;
}

double memory_seconds(const Machine& machine, double bytes) {
  return by_bytes(machine, bytes) + machine.device.launch;
}

std::string measured_name(const TracedOperation& operation) {
  if (operation.name != "gemm") {
    return fmt::format("{} {}", operation.name, name_of(operation.dtype));
  }
  return fmt::format("gemm {} {}", form_of(operation), name_of(operation.dtype));
}

double kernel_seconds(const Machine& machine, const TracedOperation& operation) {
  if (operation.group >= 0) return 0;
  const auto bytes = static_cast<double>(operation.bytes_read + operation.bytes_written);
  if (operation.name == "gemm") {
    const Shape& shape = operation.shape;
    const double product = product_seconds(machine, operation.dtype, shape.dim(0), shape.dim(1),
                                           shape.dim(2), 1, form_of(operation));
    const bool known = measured(machine, measured_name(operation)) != nullptr;
    return known ? product : std::max(product, memory_seconds(machine, bytes));
  }
  const Measured* const known = measured(machine, measured_name(operation));
  if (operation.flops == 0) {
    if (known == nullptr || bytes == 0) return memory_seconds(machine, bytes);
    return by_bytes_of(*known, bytes) / machine.efficiency.memory + machine.device.launch;
  }
  if (known != nullptr) {
    return by_nearest(*known, {operation.flops, bytes}, [](const auto& size) { return size[0]; }) /
               machine.efficiency.products +
           machine.device.launch;
  }
  // Fused attention: products of tiles that stay on the unit, at the rate of small products.
  const double of_products = operation.name.starts_with("attention") ? 0.75 : 1;
  const double rate = machine.peak_of(operation.dtype) * machine.efficiency.products * of_products;
  return std::max(operation.flops / rate, by_bytes(machine, bytes)) + machine.device.launch;
}

double collective_seconds(const Machine& machine, Operation operation, double bytes,
                          const GroupShape& shape) {
  if (shape.members <= 1) return 0;
  const auto members = static_cast<double>(shape.members);
  const auto inside = static_cast<double>(std::min(shape.members, shape.members_per_node));
  const auto nodes = static_cast<double>(shape.nodes());
  double bandwidth = machine.inside.bandwidth, latency = machine.inside.latency;
  if (nodes > 1) {
    const double part = inside / static_cast<double>(machine.devices_per_node);
    bandwidth = std::min(inside > 1 ? bandwidth : std::numeric_limits<double>::infinity(),
                         machine.across.bandwidth * part);
    latency = machine.across.latency;
  }
  bandwidth *= machine.efficiency.links;
  // `around` is how often the full tensor crosses a link; `hops` is the latency of the consecutive
  // hops.
  const bool twice = operation == Operation::all_reduce;
  const double around = (members - 1) / members * (twice ? 2 : 1);
  const double hops = (nodes - 1) * latency + (members - nodes) * machine.inside.latency;
  const double ring = around * bytes / bandwidth + (twice ? 2 : 1) * hops;
  if (operation != Operation::all_reduce && operation != Operation::broadcast &&
      operation != Operation::reduce) {
    return ring;
  }
  const double deep =
      std::ceil(std::log2(nodes)) * latency + std::ceil(std::log2(inside)) * machine.inside.latency;
  return std::min(ring, (twice ? 2 : 1) * (bytes / bandwidth + deep));
}

double message_seconds(const Machine& machine, double bytes, bool same_node) {
  const double links = machine.efficiency.links;
  if (same_node) return bytes / (machine.inside.bandwidth * links) + machine.inside.latency;
  const double part =
      machine.across.bandwidth / static_cast<double>(machine.devices_per_node) * links;
  return bytes / part + machine.across.latency;
}

}  // namespace trident

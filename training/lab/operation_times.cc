#include "training/lab/operation_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace trident {
namespace {

double by_bytes(const Machine& machine, double bytes) {
  return bytes / (machine.device.memory_bandwidth * machine.efficiency.memory);
}

// The rate of shapes that weren't measured: the mean of the three nearest by the logarithms of
// their sizes, nearer ones weighing more.
double measured_rate(const Machine& machine, DType dtype, double m, double n, double k) {
  struct Near {
    double distance = std::numeric_limits<double>::infinity(), rate = 0;
  };
  std::array<Near, 3> nearest;
  for (const MeasuredProduct& known : machine.device.products) {
    if (known.dtype != dtype) continue;
    const auto apart = [](double a, std::int64_t b) {
      return std::abs(std::log2(a / static_cast<double>(b)));
    };
    Near here{apart(m, known.m) + apart(n, known.n) + apart(k, known.k), known.flops_per_second};
    for (Near& near : nearest) {
      if (here.distance < near.distance) std::swap(here, near);
    }
  }
  double weights = 0, sum = 0;
  for (const Near& near : nearest) {
    if (near.rate == 0) continue;
    const double weight = 1 / (near.distance * near.distance + 1e-6);
    weights += weight;
    sum += weight / near.rate;
  }
  return weights > 0 ? weights / sum : 0;
}

struct Tile {
  double rows, columns;
  // Against the largest: what is read of the operands for each FLOP costs time beside it.
  double efficiency() const {
    constexpr double reading = 25;  // FLOPs' worth of an operand's element
    constexpr double largest = 1 + reading * (1.0 / 256 + 1.0 / 128);
    return largest / (1 + reading * (1 / rows + 1 / columns));
  }
};

double tiled_seconds(const Machine& machine, DType dtype, double m, double n, double k,
                     double batch) {
  constexpr std::array<Tile, 6> tiles{
      {{128, 256}, {256, 128}, {128, 128}, {64, 128}, {128, 64}, {64, 64}}};
  constexpr double begin = 50;  // elements of k, in time
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

}  // namespace

double product_seconds(const Machine& machine, DType dtype, std::int64_t m, std::int64_t n,
                       std::int64_t k, std::int64_t batch) {
  const auto [rows, columns, depth, many] =
      std::array{static_cast<double>(m), static_cast<double>(n), static_cast<double>(k),
                 static_cast<double>(batch)};
  const auto width = static_cast<double>(size_of(dtype)) * many;
  const double read = by_bytes(machine, width * (rows * depth + depth * columns));
  const double written = by_bytes(machine, width * rows * columns);
  double seconds = 0;
  if (const double rate = measured_rate(machine, dtype, rows, columns, depth); rate > 0) {
    seconds = std::max(read + written, 2 * many * rows * columns * depth / rate);
  } else {
    seconds = std::max(read, tiled_seconds(machine, dtype, rows, columns, depth, many)) + written;
  }
  return seconds + machine.device.launch;
}

double memory_seconds(const Machine& machine, double bytes) {
  return by_bytes(machine, bytes) + machine.device.launch;
}

double kernel_seconds(const Machine& machine, const TracedOperation& operation) {
  if (operation.group >= 0) return 0;
  const auto bytes = static_cast<double>(operation.bytes_read + operation.bytes_written);
  if (operation.flops == 0) return memory_seconds(machine, bytes);
  if (operation.name == "gemm") {
    const Shape& shape = operation.shape;
    return std::max(
        product_seconds(machine, operation.dtype, shape.dim(0), shape.dim(1), shape.dim(2)),
        memory_seconds(machine, bytes));
  }
  // Fused attention: products of tiles that stay on the unit, at the rate of small ones.
  constexpr double of_products = 0.75;
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
  // How often the whole goes over a link, and how many hops follow each other.
  const bool twice = operation == Operation::all_reduce;
  const double around = (members - 1) / members * (twice ? 2 : 1);
  const double hops = (nodes - 1) + (members - nodes) * machine.inside.latency / latency;
  const double ring = around * bytes / bandwidth + (twice ? 2 : 1) * hops * latency;
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

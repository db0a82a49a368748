// Prints a machine as its file.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "planner/machine/machine.h"
#include "planner/machine/prediction_error.h"

namespace trident {
namespace {

using Json = nlohmann::ordered_json;

Json link_json(const Machine::Link& link) {
  return {{"bandwidth", link.bandwidth}, {"latency", link.latency}};
}

// Prints each key of an object on its own line, with its whole value.
std::string lines(const Json& object, const std::string& indent) {
  std::string text;
  for (const auto& [key, value] : object.items()) {
    text += fmt::format("{}{}{}: {}", text.empty() ? "" : ",\n", indent, Json(key).dump(),
                        value.dump());
  }
  return text;
}

// Rounds to the number of digits that a measurement has.
double to_four_digits(double value) {
  return std::stod(fmt::format("{:.4g}", value));
}

std::string kernel_rows(const Machine::Device& device) {
  std::string text;
  for (const auto& [name, kernels] : device.kernels) {
    const std::size_t blank = name.rfind(' ');
    for (const MeasuredKernel& kernel : kernels) {
      Json row{name.substr(0, blank), name.substr(blank + 1)};
      for (const double size : kernel.size) {
        if (size > 0) row.push_back(size);
      }
      row.push_back(to_four_digits(kernel.seconds));
      text += fmt::format("{}      {}", text.empty() ? "" : ",\n", row.dump());
    }
  }
  return text;
}

}  // namespace

std::string machine_text(const Machine& machine) {
  const Machine::Device& d = machine.device;
  Json device{{"name", d.name},
              {"kind", d.gpu ? "gpu" : "cpu"},
              {"memory", d.memory},
              {"memory_bandwidth", d.memory_bandwidth},
              {"units", d.units}};
  if (d.launch > 0) device["launch"] = d.launch;
  if (d.taken_by_collectives > 0) device["taken_by_collectives"] = d.taken_by_collectives;
  if (d.skew > 0) device["skew"] = d.skew;
  for (const auto& [dtype, rate] : d.peak) device["peak"][name_of(dtype)] = rate;
  std::string text = "{\n" + lines({{"name", machine.name}}, "  ");
  if (!machine.source.empty()) text += ",\n" + lines({{"source", machine.source}}, "  ");
  text += ",\n  \"device\": {\n" + lines(device, "    ");
  if (!d.kernels.empty()) text += ",\n    \"kernels\": [\n" + kernel_rows(d) + "\n    ]";
  Json rest{{"devices_per_node", machine.devices_per_node}};
  if (machine.nodes > 0) rest["nodes"] = machine.nodes;
  rest["inside"] = link_json(machine.inside);
  rest["across"] = link_json(machine.across);
  rest["efficiency"] = {{"products", machine.efficiency.products},
                        {"memory", machine.efficiency.memory},
                        {"links", machine.efficiency.links}};
  if (!machine.error.of.empty()) rest["error"] = error_json(machine);
  return text + "\n  },\n" + lines(rest, "  ") + "\n}\n";
}

}  // namespace trident

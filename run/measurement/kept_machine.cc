// Keeps the result of bench_machine() in a file for later calls.
#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/files/crc64.h"
#include "base/files/file.h"
#include "base/process/process.h"
#include "run/measurement/bench.h"
#include "run/measurement/measured.h"

namespace trident {
namespace {

// Everything that a measurement depends on: device, cores, program and configs. Leaves out the
// configs' data, folders and length of training.
std::string key_of(const MachineRequest& request) {
  const Config& first = request.configs.front();
  const Devices devices(first);
  bench::Json key{{"versions", bench::versions_json(devices)},
                  {"processor", processor_name()},
                  {"cores", request.cores},
                  {"device", bench::device_name(devices, first.runtime.threads_per_rank)}};
  for (const Config& config : request.configs) {
    bench::Json one = bench::Json::parse(config_to_json(config));
    const bench::Json length = one["data"]["sequence_length"];
    for (const char* section : {"data", "logging", "checkpoint", "training", "scheduler"}) {
      one.erase(section);
    }
    one["sequence_length"] = length;
    one["runtime"].erase("machine");
    key["configs"].push_back(std::move(one));
  }
  return key.dump();
}

}  // namespace

Machine kept_machine(const MachineRequest& request, const std::string& folder) {
  if (folder.empty()) return bench_machine(request);
  const std::string path = fmt::format("{}/machines/{:016x}.json", folder, crc64(key_of(request)));
  std::error_code none;
  if (std::filesystem::exists(path, none)) {
    try {
      Machine machine = parse_machine(read_file(path, std::uint64_t{64} << 20), path);
      if (request.report) request.report(fmt::format("as it was measured before: {}\n", path));
      return machine;
    } catch (const Error&) {
      // The file is damaged or belongs to another user, so measure again.
    }
  }
  // Parses its own text, so that this run and later runs get the same machine.
  const std::string text = machine_text(bench_machine(request));
  try {
    std::filesystem::create_directories(folder + "/machines");
    write_file_atomic(path, text);
    if (request.report) request.report(fmt::format("kept for the next time: {}\n", path));
  } catch (const std::exception& error) {
    if (request.report)
      request.report(fmt::format("not kept for the next time: {}\n", error.what()));
  }
  return parse_machine(text, path);
}

}  // namespace trident

// What the measurements of `trident bench` share.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/median.h"
#include "core/clock.h"
#include "planner/machine/machine.h"
#include "run/launch/devices.h"

namespace trident::bench {

using Json = nlohmann::ordered_json;

// Of this machine's devices, with so many threads a rank of a CPU, as a machine's file has it.
std::string device_name(const Devices&, std::int64_t threads);
// RequestError where the file is of another device.
void need_same_device(const Machine& known, const std::string& device, const std::string& place);

double seconds_between(const ClockReading& from, const ClockReading& to);
// Of this program and of the libraries that compute on these devices.
Json versions_json(const Devices&);

}  // namespace trident::bench

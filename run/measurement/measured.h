// Helpers that the measurements of `trident bench` share.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/median.h"
#include "core/clock.h"
#include "planner/machine/machine.h"
#include "run/processes/devices.h"

namespace trident::bench {

using Json = nlohmann::ordered_json;

// The name of this machine's device in a machine's file; for a CPU with the threads of a rank.
std::string device_name(const Devices&, std::int64_t threads);
// RequestError, beginning with `place`, where `known` describes another device.
void need_same_device(const Machine& known, const std::string& device, const std::string& place);

double seconds_between(const ClockReading& from, const ClockReading& to);
// The versions of this program and of the libraries that compute on these devices.
Json versions_json(const Devices&);

}  // namespace trident::bench

// What the measurements of `trident bench` share.
#pragma once

#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/median.h"
#include "training/run/devices.h"

namespace trident::bench {

using Json = nlohmann::ordered_json;

double seconds_between(const ClockReading& from, const ClockReading& to);
// Of the libraries that compute on these devices.
Json versions_json(const Devices&);

}  // namespace trident::bench

// What the measurements of `trident bench` share.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "core/clock.h"
#include "training/run/devices.h"

namespace trident::bench {

using Json = nlohmann::ordered_json;

double median(std::vector<double> values);
double seconds_between(const ClockReading& from, const ClockReading& to);
// Of the libraries that compute on these devices.
Json versions_json(const Devices&);

}  // namespace trident::bench

// The values of a Hugging Face config.json: as numbers, and as texts in messages.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace trident {

// An integer from 1 to largest_size; nullopt for any other value.
std::optional<std::int64_t> as_size(const nlohmann::json& value);
inline constexpr std::int64_t largest_size = 1'000'000'000;
inline constexpr auto size_rule = "needs a whole number from 1 to 1000000000";

// A finite number above 0; nullopt for any other value.
std::optional<double> as_positive(const nlohmann::json& value);
inline constexpr auto positive_rule = "needs a number above 0";

// The value as shown in messages.
std::string shown_value(const nlohmann::json& value);

}  // namespace trident

#include "models/hugging_face_values.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "base/printable.h"

namespace trident {

std::optional<std::int64_t> as_size(const nlohmann::json& value) {
  if (!value.is_number_integer() || value < 1 || value > largest_size) return std::nullopt;
  return value.get<std::int64_t>();
}

std::optional<double> as_positive(const nlohmann::json& value) {
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0) {
    return std::nullopt;
  }
  return value.get<double>();
}

std::string shown_value(const nlohmann::json& value) {
  return printable(json_text(value), 80);
}

}  // namespace trident

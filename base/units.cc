#include "base/units.h"

#include <fmt/format.h>

#include <cmath>

namespace trident {

std::string bytes_text(double bytes) {
  if (std::abs(bytes) < 1024) return fmt::format("{:.0f} B", bytes);
  const char* unit = "B";
  for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
    // An amount that would be shown as 1024.00 gets the next unit.
    if (std::abs(bytes) < 1023.995) break;
    bytes /= 1024;
    unit = larger;
  }
  return fmt::format("{:.2f} {}", bytes, unit);
}

ByteUnit byte_unit(double largest) {
  if (largest >= 10 * 0x1p30) return {"GiB", 0x1p30};
  return {};
}

std::string seconds_text(double seconds) {
  if (!std::isfinite(seconds)) return fmt::format("{} s", seconds);
  const double size = std::abs(seconds);
  if (size < 1e-12) return "0 s";
  if (size < 0.99995e-3) return fmt::format("{:#.4g} µs", seconds * 1e6);
  if (size < 0.99995) return fmt::format("{:#.4g} ms", seconds * 1e3);
  if (size < 9999.5) return fmt::format("{:#.4g} s", seconds);
  return fmt::format("{:.0f} s", seconds);
}

double without_residue(double value, int digits) {
  return std::abs(value) < 0.5 * std::pow(10.0, -digits) ? 0.0 : value;
}

std::string percent_text(double part, int digits) {
  return fmt::format("{:.{}f}%", without_residue(100 * part, digits), digits);
}

std::string counted(std::int64_t count, std::string_view what) {
  const char* const end = what.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : end);
}

}  // namespace trident

// Writes amounts for people. A quantity has the same unit everywhere (docs/reports.md, "Units").
// JSON and CSV have bare numbers, whose keys name the unit: peak_bytes, step_seconds, parts_ms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trident {

// A number of bytes of memory, files or messages: "512 B", "720.00 KiB", "1.25 GiB"; 1 KiB is 1,024
// B.
std::string bytes_text(double bytes);
inline std::string bytes_text(std::int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

// The common unit for a column of byte amounts: GiB if the largest is at least 10 GiB, else MiB.
struct ByteUnit {
  const char* name = "MiB";
  double bytes = 0x1p20;
  double of(double amount) const { return amount / bytes; }
  double of(std::int64_t amount) const { return of(static_cast<double>(amount)); }
};
ByteUnit byte_unit(double largest);

// A time with its unit, in four digits: "1.234 ms", "83.50 s", "12.00 µs". A time below a
// picosecond is the rounding error of a sum, and becomes "0 s".
std::string seconds_text(double seconds);

// A fraction as percent: "12.3%". Never "-0.0%".
std::string percent_text(double part, int digits = 1);

// `value`, or 0 without a sign if it rounds to zero at that many decimal `digits`.
double without_residue(double value, int digits);

// "1 rank", "2 ranks", "3 batches".
std::string counted(std::int64_t count, std::string_view what);

}  // namespace trident

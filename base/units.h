// How amounts are written for people: one thing has one unit everywhere (docs/reports.md, "Units").
// JSON and CSV have bare numbers, whose keys say the unit: peak_bytes, step_seconds, parts_ms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trident {

// Memory, files and messages alike: "512 B", "720.00 KiB", "1.25 GiB"; 1 KiB is 1,024 B.
std::string bytes_text(double bytes);
inline std::string bytes_text(std::int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

// The unit of a column of such amounts: MiB, where the largest has 10 GiB or more GiB.
struct ByteUnit {
  const char* name = "MiB";
  double bytes = 0x1p20;
  double of(double amount) const { return amount / bytes; }
  double of(std::int64_t amount) const { return of(static_cast<double>(amount)); }
};
ByteUnit byte_unit(double largest);

// A time with its unit, in four digits: "1.234 ms", "83.50 s", "12.00 µs". What is below a
// picosecond is the residue of a sum: "0 s".
std::string seconds_text(double seconds);

// A part as percent: "12.3%". Never "-0.0%".
std::string percent_text(double part, int digits = 1);

// What rounds to zero at so many digits is zero, without a sign.
double without_residue(double value, int digits);

// "1 rank", "2 ranks", "3 batches".
std::string counted(std::int64_t count, std::string_view what);

}  // namespace trident

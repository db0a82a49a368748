#include "planner/simulation/what_if.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "base/printable.h"

namespace trident {

void WhatIf::read(const std::string& option, const std::string& text, double& factor,
                  std::int64_t& place) {
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, factor);
  bool good = code == std::errc{} && factor >= 1 && factor <= 1e6;
  if (good && stop != end) {
    const auto [last, error] = std::from_chars(stop + 1, end, place);
    good = *stop == ':' && error == std::errc{} && last == end && place >= 0;
  }
  if (good) return;
  throw RequestError(fmt::format(
      "{}: \"{}\": needs a factor of 1 to 1,000,000 and, after a colon, a place of the pipeline, "
      "as 1.5 or 1.5:3",
      option, printable(text)));
}

}  // namespace trident

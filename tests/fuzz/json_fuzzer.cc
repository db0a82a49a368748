#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "fuzz/fuzzing.h"

namespace trident::fuzzing {
namespace {

std::size_t depth_of(const nlohmann::json& value) {
  std::size_t depth = 0;
  for (const auto& one : value) depth = std::max(depth, one.is_structured() ? depth_of(one) : 0);
  return depth + 1;
}

}  // namespace

void fuzz_json(std::string_view input) {
  nlohmann::json value;
  const nlohmann::json plain = json_or_null(input);
  if (!accepted([&] { value = parse_json(input, "file.json"); })) return;
  require(value == plain, "the library reads the same value");
  require(!value.is_structured() || depth_of(value) <= kMaxJsonDepth, "the depth has a limit");
  require(parse_json(json_text(value), "written") == value &&
              parse_json(json_text(value, 2), "written") == value,
          "a value that is read and written is the same");
}

}  // namespace trident::fuzzing

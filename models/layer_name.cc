#include "models/layer_name.h"

#include <charconv>

#include "base/error.h"

namespace trident {

std::string layer_name(int index) {
  return "layers." + std::to_string(index);
}

LayerName parse_layer_name(const std::string& name) {
  constexpr std::string_view prefix = "layers.";
  LayerName result;
  if (name.starts_with(prefix)) {
    const char* begin = name.data() + prefix.size();
    const char* end = name.data() + name.size();
    const auto [at, error] = std::from_chars(begin, end, result.index);
    if (error == std::errc() && result.index >= 0 && at != end && *at == '.') {
      result.rest.assign(at + 1, end);
      return result;
    }
  }
  throw Error("parameter " + name + " belongs to no layer");
}

}  // namespace trident

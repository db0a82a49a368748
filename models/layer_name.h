// Names of the parameters of layer i: "layers.<i>.<rest>".
#pragma once

#include <string>

namespace trident {

struct LayerName {
  int index = 0;
  std::string rest;
};
std::string layer_name(int index);
// Throws Error if `name` is not a layer's parameter.
LayerName parse_layer_name(const std::string& name);

}  // namespace trident

// Rotary position embedding.
#pragma once

#include <cstdint>

#include "core/context.h"
#include "kernels/attention.h"

namespace trident {

// Rotary position embedding (Su 2021), in the half-split form that Llama has in transformers. It
// rotates the query and key heads of qkv in place: the pair (i, i + D/2) by the angle
// position · base^(-2i/D).
// `inverse` rotates back, which is the gradient. D must be even.
struct RotaryArgs {
  AttentionShape shape{};
  Tensor qkv;
  float base = 10000.0f;
  bool inverse = false;
  std::int64_t begin = 0;      // position of each sample's first row
  std::int64_t positions = 0;  // size of the table kept between calls, >= begin + S; 0: S

  std::int64_t tabulated() const { return positions > 0 ? positions : shape.sequence; }
};
void rotary(Context&, const RotaryArgs&);

}  // namespace trident

// Rotary position embedding.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "core/context.h"
#include "kernels/attention.h"

namespace trident {

// The angles of rotary positions. Pair i of a head of D elements turns by position · f_i, where
// f_i = base^(-2i/D) if nothing is scaled. A scaling divides the low frequencies by `factor` and
// keeps the high ones: f_i becomes f_i · (1 - g_i) + f_i / factor · g_i, where g_i is
// slope · u + shift within 0 to 1, and u is the number of the pair or, if `turns` is positive,
// turns · f_i. The cosines and sines are multiplied by `amplitude`.
struct RotaryFrequencies {
  float base = 10000.0f;
  double factor = 1, slope = 0, shift = 0, turns = 0;
  float amplitude = 1;
  double plain(std::int64_t pair, std::int64_t head_dim) const;  // base^(-2i/D)
  double of(std::int64_t pair, std::int64_t head_dim) const;     // f_i
  // f_i of the plain frequency and the number of the pair. A GPU's kernel calls it, too.
  constexpr double scaled(double plain, double pair) const {
    const double ramp = slope * (turns > 0 ? turns * plain : pair) + shift;
    const double g = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return plain * (1 - g) + plain / factor * g;
  }
  auto operator<=>(const RotaryFrequencies&) const = default;
};

// The scalings that checkpoints of Llama and related families have ("rope_type" in transformers,
// whose formulas these are). `original` is the number of positions that the model was trained on
// before it was scaled.

// Divides all frequencies by `factor` (Chen 2023).
RotaryFrequencies linear_frequencies(float base, double factor);
// Keeps the pairs that turn more than `high` times in `original` positions and divides those that
// turn less than `low` times (Llama 3.1). low < high.
RotaryFrequencies llama3_frequencies(float base, double factor, double low, double high,
                                     double original);
// As llama3, with bounds of beta_fast and beta_slow turns, a ramp by the number of the pair, and an
// amplitude (YaRN, Peng 2023). `truncate` rounds the ends of the ramp to whole pairs.
struct YarnScaling {
  double factor = 1, beta_fast = 32, beta_slow = 1, original = 0;
  bool truncate = true;
  double amplitude = 1;
};
RotaryFrequencies yarn_frequencies(float base, std::int64_t head_dim, const YarnScaling&);

// The plain frequency of each of the D/2 pairs, divided by the scaled one.
std::vector<float> frequency_divisors(const RotaryFrequencies&, std::int64_t head_dim);

// Rotary position embedding (Su 2021), in the half-split form that Llama has in transformers. It
// rotates heads of D elements in place: the pair (i, i + D/2) by its angle. `inverse` turns by the
// opposite angles, which gives the gradient of x. D must be even.
struct RotaryArgs {
  std::int64_t batch = 0, sequence = 0, heads = 0, head_dim = 0;
  HeadColumns x;             // rows B·S
  std::int64_t stride = 0;   // from a head's first element to the next one's; 0: D
  bool interleaved = false;  // the pairs are (2i, 2i + 1), as in the paper
  RotaryFrequencies frequencies;
  bool inverse = false;
  std::int64_t begin = 0;  // position of each sample's first row
  Tensor row_positions;    // (B·S) i32: the position of each row instead; none: begin + its place
  // Size of the table kept between calls, >= begin + S and above all row_positions; 0: S.
  std::int64_t positions = 0;

  std::int64_t tabulated() const { return positions > 0 ? positions : sequence; }
  std::int64_t head_stride() const { return stride > 0 ? stride : head_dim; }
};
// The query and key heads of a fused projection (B·S, row()).
RotaryArgs rotary_of(const AttentionShape&, const Tensor& qkv);
void rotary(Context&, const RotaryArgs&);

}  // namespace trident

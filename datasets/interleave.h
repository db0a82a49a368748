// Chooses the source of the i-th sample among several weighted sources: the source with the largest
// deficit to its weight, w·max(i, 1) − (samples drawn so far). Of equal deficits the lowest index
// wins. Megatron-LM blends its datasets in the same way (core/datasets/helpers.cpp,
// build_blending_indices). A source of weight 0 is never drawn. Not thread-safe: each rank has its
// own object.
//
// Deficits are integers, so every machine draws the same order. A power of ten scales the weights
// to integers if nine decimals are enough; otherwise they are rounded to 40 bits of their sum.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace trident {

class Interleave {
 public:
  // Needs at least one weight, each >= 0 and finite, with a sum > 0; otherwise RequestError.
  explicit Interleave(std::span<const double> weights);

  struct Draw {
    int source;
    std::int64_t index;  // the number of this sample within its source, from 0
  };
  // The draw of sample `i`. Costs O(sources) for each sample between the last `i` and this one:
  // about two nanoseconds a source and sample, so a resume at sample 10^8 takes well under a
  // second. All moves back together redraw about as many samples as they go back.
  Draw at(std::int64_t i);

  // The number of draws of each source among the first `samples` samples. Costs as much as at().
  std::vector<std::int64_t> drawn(std::int64_t samples);

  // The number of draws that all calls so far have made.
  std::int64_t steps() const { return steps_; }

  // Each source's share of the draws, in the order of the sources; they sum to 1.
  std::vector<double> shares() const;

 private:
  void step();  // draws the sample state_.next into last_

  struct State {
    std::int64_t next = 0;              // the sample that step() draws
    std::vector<std::int64_t> deficit;  // weight·next − drawn·total, by source
    std::vector<std::int64_t> drawn;
  };
  static constexpr std::int64_t kShortest = 16;

  std::vector<std::int64_t> weights_;  // integers
  std::int64_t total_ = 0;             // the sum of weights_
  State state_;
  // kept_[k]: the two latest states at multiples of 16·2^k. The earlier state is at least 16·2^k
  // draws back and less than twice that.
  std::array<std::array<State, 2>, 40> kept_;
  std::int64_t steps_ = 0;
  Draw last_{0, 0};
};

}  // namespace trident

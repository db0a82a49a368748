// Which of several weighted sources the i-th sample comes from: the one with the largest deficit
// to its weight, w·max(i, 1) − (samples drawn so far), the lowest index where several are equal;
// as Megatron-LM blends its datasets (core/datasets/helpers.cpp, build_blending_indices). A source
// of weight 0 is never drawn.
//
// Deficits are kept in integers, so every machine draws the same order: weights are scaled to
// whole numbers by a power of ten where up to nine decimals allow it, and rounded to 40 bits of
// their sum where not.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace trident {

class Interleave {
 public:
  // Weights >= 0 and finite, their sum > 0, at least one; otherwise a RequestError.
  explicit Interleave(std::span<const double> weights);

  struct Draw {
    int source;
    std::int64_t index;  // the how-manieth sample of that source, from 0
  };
  // The draw of sample `i`. Costs O(sources) for each sample from the one asked last (about two
  // nanoseconds a source and sample, so a resume at sample 10^8 takes well under a second); all
  // ways back together draw about as many again as they are long. Not for several threads at once:
  // each rank has its own.
  Draw at(std::int64_t i);

  // How many of the first `samples` draws are each source's. Costs as at().
  std::vector<std::int64_t> drawn(std::int64_t samples);

  // Draws that were made so far for all that was asked.
  std::int64_t steps() const { return steps_; }

  // The sources' shares of the draws, in their order; they sum to 1.
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
  std::int64_t total_ = 0;             // their sum
  State state_;
  // The two latest states at multiples of 16·2^k: the earlier one is at least 16·2^k draws back and
  // less than twice as many.
  std::array<std::array<State, 2>, 40> kept_;
  std::int64_t steps_ = 0;
  Draw last_{0, 0};
};

}  // namespace trident

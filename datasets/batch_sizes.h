// How many samples each iteration of a run takes.
#pragma once

#include <cstdint>
#include <vector>

namespace trident {

// Batches that grow (Megatron-LM's --rampup-batch-size): from `start` by `increment` to the global
// batch size while the first `samples` samples are consumed, in equal stretches of these. An
// iteration that begins after c samples takes min(G, start + increment·floor(c·n/samples)), n the
// number of increments.
struct BatchRamp {
  std::int64_t start = 0, increment = 0, samples = 0;  // samples 0: no ramp
};

class BatchSizes {
 public:
  // The same number for each iteration, from sample 0 on.
  BatchSizes(std::int64_t size = 1)  // NOLINT(google-explicit-constructor)
      : BatchSizes(size, {}, 0, 0) {}
  // Of a run whose iteration `first`, from 0, begins after `consumed` samples.
  BatchSizes(std::int64_t size, const BatchRamp& ramp, std::int64_t first, std::int64_t consumed);

  // Iteration k, from 0, at least `first` where there is a ramp.
  std::int64_t of(std::int64_t k) const { return at(k).size; }
  std::int64_t first_sample(std::int64_t k) const;
  // Whole iterations after the first that so many samples are enough for.
  std::int64_t iterations(std::int64_t samples) const;
  std::int64_t largest() const { return stretches_.back().size; }
  // Each size that is left, ascending.
  std::vector<std::int64_t> sizes() const;

 private:
  // Iterations of one size, up to where the next stretch begins.
  struct Stretch {
    std::int64_t iteration, sample, size;
  };
  const Stretch& at(std::int64_t k) const;

  std::vector<Stretch> stretches_;
};

}  // namespace trident

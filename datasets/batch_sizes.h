// The number of samples that each iteration of a run takes, with or without a batch-size ramp.
#pragma once

#include <cstdint>
#include <vector>

namespace trident {

// A ramp of the batch size (Megatron-LM's --rampup-batch-size). The size grows from `start` by
// `increment` to the global batch size G while the run consumes its first `samples` samples; each
// increment comes after an equal number of samples. An iteration that begins after c samples takes
// min(G, start + increment·floor(c·n/samples)) samples, where n is the number of increments.
struct BatchRamp {
  std::int64_t start = 0, increment = 0, samples = 0;  // samples 0: no ramp
};

class BatchSizes {
 public:
  // The same number for each iteration, from sample 0 on.
  BatchSizes(std::int64_t size = 1)  // NOLINT(google-explicit-constructor)
      : BatchSizes(size, {}, 0, 0) {}
  // The sizes of a run whose iteration `first`, from 0, begins after `consumed` samples. Error if
  // no integer number of increments leads from ramp.start to `size`.
  BatchSizes(std::int64_t size, const BatchRamp& ramp, std::int64_t first, std::int64_t consumed);

  // The size of iteration k, from 0. With a ramp, k must be at least `first`.
  std::int64_t of(std::int64_t k) const { return at(k).size; }
  std::int64_t first_sample(std::int64_t k) const;
  // The number of complete iterations, from `first` on, for which `samples` samples are enough.
  std::int64_t iterations(std::int64_t samples) const;
  std::int64_t largest() const { return ranges_.back().size; }
  // The sizes of the iterations from `first` on, each once, ascending.
  std::vector<std::int64_t> sizes() const;

 private:
  // Consecutive iterations of one size. A range ends where the next one begins.
  struct SizeRange {
    std::int64_t iteration, sample, size;
  };
  const SizeRange& at(std::int64_t k) const;

  std::vector<SizeRange> ranges_;
};

}  // namespace trident

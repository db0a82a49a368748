#include "datasets/batch_sizes.h"

#include <algorithm>

#include "base/error.h"

namespace trident {
namespace {

// a·b/c, rounded down or up, where a·b may be beyond 64 bits.
__extension__ using Wide = __int128;

std::int64_t scaled_down(std::int64_t a, std::int64_t b, std::int64_t c) {
  return static_cast<std::int64_t>(Wide{a} * b / c);
}
std::int64_t scaled_up(std::int64_t a, std::int64_t b, std::int64_t c) {
  return static_cast<std::int64_t>((Wide{a} * b + c - 1) / c);
}

}  // namespace

BatchSizes::BatchSizes(std::int64_t size, const BatchRamp& ramp, std::int64_t first,
                       std::int64_t consumed) {
  if (ramp.samples > 0 && (ramp.increment < 1 || ramp.start < 1 || ramp.start >= size ||
                           (size - ramp.start) % ramp.increment != 0)) {
    throw Error("BatchSizes: no whole number of increments leads from the first batch to the last");
  }
  std::int64_t iteration = first, sample = consumed;
  const std::int64_t steps = ramp.samples > 0 ? (size - ramp.start) / ramp.increment : 0;
  while (sample < ramp.samples) {
    const std::int64_t step = scaled_down(sample, steps, ramp.samples);
    if (step == steps) break;
    const std::int64_t batch = ramp.start + step * ramp.increment;
    stretches_.push_back({iteration, sample, batch});
    // As many as begin before the next step does.
    const std::int64_t next = scaled_up(ramp.samples, step + 1, steps);
    const std::int64_t count = (next - sample + batch - 1) / batch;
    iteration += count;
    sample += count * batch;
  }
  stretches_.push_back({iteration, sample, size});
}

const BatchSizes::Stretch& BatchSizes::at(std::int64_t k) const {
  const auto after =
      std::upper_bound(stretches_.begin() + 1, stretches_.end(), k,
                       [](std::int64_t one, const Stretch& s) { return one < s.iteration; });
  return *(after - 1);
}

std::int64_t BatchSizes::first_sample(std::int64_t k) const {
  const Stretch& stretch = at(k);
  return stretch.sample + (k - stretch.iteration) * stretch.size;
}

std::int64_t BatchSizes::iterations(std::int64_t samples) const {
  const std::int64_t end = stretches_.front().sample + samples;
  const auto after =
      std::upper_bound(stretches_.begin() + 1, stretches_.end(), end,
                       [](std::int64_t one, const Stretch& s) { return one < s.sample; });
  const Stretch& stretch = *(after - 1);
  return stretch.iteration - stretches_.front().iteration + (end - stretch.sample) / stretch.size;
}

std::vector<std::int64_t> BatchSizes::sizes() const {
  std::vector<std::int64_t> sizes;
  for (const Stretch& stretch : stretches_) sizes.push_back(stretch.size);
  return sizes;
}

}  // namespace trident

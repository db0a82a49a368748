#include "datasets/batch_sizes.h"

#include <algorithm>

#include "base/error.h"

namespace trident {
namespace {

// a·b/c, rounded down or up; a·b may exceed 64 bits.
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
    ranges_.push_back({iteration, sample, batch});
    // The iterations that begin before the next step of the ramp.
    const std::int64_t next = scaled_up(ramp.samples, step + 1, steps);
    const std::int64_t count = (next - sample + batch - 1) / batch;
    iteration += count;
    sample += count * batch;
  }
  ranges_.push_back({iteration, sample, size});
}

const BatchSizes::SizeRange& BatchSizes::at(std::int64_t k) const {
  const auto after =
      std::upper_bound(ranges_.begin() + 1, ranges_.end(), k,
                       [](std::int64_t one, const SizeRange& s) { return one < s.iteration; });
  return *(after - 1);
}

std::int64_t BatchSizes::first_sample(std::int64_t k) const {
  const SizeRange& range = at(k);
  return range.sample + (k - range.iteration) * range.size;
}

std::int64_t BatchSizes::iterations(std::int64_t samples) const {
  const std::int64_t end = ranges_.front().sample + samples;
  const auto after =
      std::upper_bound(ranges_.begin() + 1, ranges_.end(), end,
                       [](std::int64_t one, const SizeRange& s) { return one < s.sample; });
  const SizeRange& range = *(after - 1);
  return range.iteration - ranges_.front().iteration + (end - range.sample) / range.size;
}

std::vector<std::int64_t> BatchSizes::sizes() const {
  std::vector<std::int64_t> sizes;
  for (const SizeRange& range : ranges_) sizes.push_back(range.size);
  return sizes;
}

}  // namespace trident

#include "datasets/batch_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace trident {

BatchSampler::BatchSampler(std::shared_ptr<const Dataset> dataset, const BatchShape& shape)
    : dataset_(std::move(dataset)),
      shape_(shape),
      interleave_(dataset_->interleave()),
      sample_(static_cast<std::size_t>(dataset_->sequence_length() + 1)) {
  const auto& [batches, micro, place, places, tokens] = shape_;
  for (const std::int64_t global : batches.sizes()) {
    if (micro >= 1 && places >= 1 && place >= 0 && place < places && global >= 1 &&
        global % (micro * places) == 0) {
      continue;
    }
    throw RequestError(
        fmt::format("global batch {} doesn't divide into micro-batches of {} on {} data-parallel "
                    "ranks (this is rank {})",
                    global, micro, places, place));
  }
}

std::int64_t BatchSampler::micro_batches(std::int64_t iteration) const {
  return shape_.global_batch_size.of(iteration) / (shape_.micro_batch_size * shape_.places);
}

void BatchSampler::fill(std::int64_t iteration, std::int64_t micro_batch, HostMicroBatch& out) {
  const auto& [batches, micro, place, places, tokens] = shape_;
  const std::int64_t global = batches.of(iteration), count = micro_batches(iteration);
  if (micro_batch < 0 || micro_batch >= count || iteration < 0 ||
      iteration >= std::numeric_limits<std::int64_t>::max() / global) {
    throw Error(fmt::format("micro-batch {} of iteration {} asked for, which has {}", micro_batch,
                            iteration, count));
  }
  const auto s = static_cast<std::size_t>(dataset_->sequence_length());
  const auto b = static_cast<std::size_t>(micro);
  out.tokens.resize(tokens ? b * s : 0);
  out.labels.resize(tokens ? b * s : 0);
  out.sample_ids.resize(b);
  const std::int64_t first =
      batches.first_sample(iteration) + place * (global / places) + micro_batch * micro;
  for (std::size_t row = 0; row < b; ++row) {
    const std::int64_t id = first + static_cast<std::int64_t>(row);
    out.sample_ids[row] = id;
    if (!tokens) continue;
    dataset_->read(dataset_->locate(interleave_.at(id)), sample_);
    std::copy_n(sample_.begin(), s, out.tokens.begin() + static_cast<std::ptrdiff_t>(row * s));
    std::copy_n(sample_.begin() + 1, s, out.labels.begin() + static_cast<std::ptrdiff_t>(row * s));
  }
}

}  // namespace trident

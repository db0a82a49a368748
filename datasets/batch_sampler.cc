#include "datasets/batch_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace trident {

BatchSampler::BatchSampler(std::shared_ptr<const Dataset> dataset, const BatchShape& shape)
    : dataset_(std::move(dataset)), shape_(shape), interleave_(dataset_->interleave()) {
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
  out.tokens.clear();
  out.labels.clear();
  out.sample_ids.clear();
  out.document_begins.clear();
  const std::int64_t begin = batches.first_sample(iteration) + micro_batch * micro;
  const std::int64_t first = begin + place * (global / places);
  const auto place_of = [&](std::int64_t id) { return dataset_->locate(interleave_.at(id)); };
  for (std::int64_t row = 0; row < micro; ++row) {
    out.sample_ids.push_back(first + row);
    dataset_->read(place_of(first + row), tokens, sample_);
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(out.tokens, sample_.tokens);
    append(out.labels, sample_.labels);
    append(out.document_begins, sample_.document_begins);
  }
  out.counted = dataset_->masks_labels() ? 0 : -1;
  for (int other = 0; dataset_->masks_labels() && other < places; ++other) {
    for (std::int64_t row = 0; row < micro; ++row) {
      out.counted += dataset_->counted(place_of(begin + other * (global / places) + row));
    }
  }
}

}  // namespace trident

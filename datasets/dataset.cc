#include "datasets/dataset.h"

#include <fmt/format.h>

#include "base/error.h"
#include "core/rng.h"
#include "datasets/permutation.h"

namespace trident {

Dataset::Dataset(std::vector<DataPart> parts, std::int64_t sequence_length, SampleOrder order)
    : parts_(std::move(parts)),
      sequence_length_(sequence_length),
      shuffle_(order.shuffle),
      key_(random_key(order.seed, "data/" + order.name)) {
  if (sequence_length < 1) {
    throw RequestError(fmt::format("sequence_length {}: needs at least 1", sequence_length));
  }
  for (const auto& part : parts_) {
    const std::int64_t tokens = part.end - part.begin;
    if (part.begin < 0 || part.end > part.source->size() || tokens <= sequence_length) {
      throw RequestError(
          fmt::format("{}: tokens {} to {} of {} are too few: a sample of sequence_length {} takes "
                      "{}",
                      part.source->path(), part.begin, part.end, part.source->size(),
                      sequence_length, sequence_length + 1));
    }
  }
  interleave();  // checks the weights
}

std::int64_t Dataset::samples_per_epoch() const {
  std::int64_t samples = 0;
  for (const auto& part : parts_) samples += samples_of(part);
  return samples;
}

Interleave Dataset::interleave() const {
  std::vector<double> weights;
  for (const auto& part : parts_) weights.push_back(part.weight);
  return Interleave(weights);
}

Dataset::Location Dataset::locate(Interleave::Draw draw) const {
  const auto& part = parts_.at(static_cast<std::size_t>(draw.source));
  const std::int64_t samples = samples_of(part);
  const std::int64_t epoch = draw.index / samples;
  std::int64_t sample = draw.index % samples;
  if (shuffle_) {
    const Permutation permutation(static_cast<std::uint64_t>(samples), key_,
                                  static_cast<std::uint32_t>(draw.source),
                                  static_cast<std::uint64_t>(epoch));
    sample = static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(sample)));
  }
  return {draw.source, epoch, part.begin + sample * sequence_length_};
}

void Dataset::read(const Location& location, std::span<std::int32_t> tokens) const {
  if (static_cast<std::int64_t>(tokens.size()) != sequence_length_ + 1) {
    throw Error(
        fmt::format("a sample has {} tokens, the buffer {}", sequence_length_ + 1, tokens.size()));
  }
  parts_.at(static_cast<std::size_t>(location.part)).source->read(location.begin, tokens);
}

}  // namespace trident

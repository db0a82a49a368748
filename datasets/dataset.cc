#include "datasets/dataset.h"

#include <fmt/format.h>

#include "base/error.h"
#include "core/rng.h"
#include "datasets/permutation.h"

namespace trident {

Dataset::Dataset(std::vector<DataPart> parts, std::int64_t sequence_length, SampleOrder order,
                 DocumentBorders borders)
    : parts_(std::move(parts)),
      sequence_length_(sequence_length),
      shuffle_(order.shuffle),
      key_(random_key(order.seed, "data/" + order.name)),
      borders_(borders) {
  if (sequence_length < 1) {
    throw RequestError(fmt::format("sequence_length {}: needs at least 1", sequence_length));
  }
  for (const auto& part : parts_) {
    const std::int64_t tokens = part.end - part.begin;
    const std::int64_t least = borders.window > 0 ? 1 : sequence_length + 1;
    if (part.begin < 0 || part.end > part.source->size() || tokens < least) {
      throw RequestError(fmt::format(
          "{}: tokens {} to {} of {} are too few: a sample of sequence_length {} takes "
          "{}",
          part.source->path(), part.begin, part.end, part.source->size(), sequence_length, least));
    }
  }
  for (const auto& part : parts_) {
    if (!borders_.are_needed() || borders_.eod || part.source->has_documents()) continue;
    throw RequestError(
        fmt::format("{}: is one document, and no token ends documents; give a tokenizer of type "
                    "\"file\" with an end of text (and data.append_eod), or leave out "
                    "data.reset_attention_mask, reset_position_ids, eod_mask_loss and packing",
                    part.source->path()));
  }
  if (borders_.window > 0) {
    for (const auto& part : parts_) {
      packed_.push_back(
          std::make_unique<PackedDocuments>(*part.source, part.begin, part.end,
                                            PackingOptions{.eod = borders_.eod,
                                                           .sequence = sequence_length,
                                                           .window = borders_.window,
                                                           .mask_labels = borders_.mask_labels}));
    }
  }
  interleave();  // checks the weights
}

std::int64_t Dataset::samples_of(int part) const {
  const auto number = static_cast<std::size_t>(part);
  const DataPart& own = parts_.at(number);
  return packed_.empty() ? (own.end - own.begin - 1) / sequence_length_ : packed_[number]->rows();
}

std::int64_t Dataset::samples_per_epoch() const {
  std::int64_t samples = 0;
  for (int part = 0; part < std::ssize(parts_); ++part) samples += samples_of(part);
  return samples;
}

Interleave Dataset::interleave() const {
  std::vector<double> weights;
  for (const auto& part : parts_) weights.push_back(part.weight);
  return Interleave(weights);
}

Dataset::Location Dataset::locate(Interleave::Draw draw) const {
  const auto& part = parts_.at(static_cast<std::size_t>(draw.source));
  const std::int64_t samples = samples_of(draw.source);
  const std::int64_t epoch = draw.index / samples;
  std::int64_t sample = draw.index % samples;
  if (shuffle_) {
    const Permutation permutation(static_cast<std::uint64_t>(samples), key_,
                                  static_cast<std::uint32_t>(draw.source),
                                  static_cast<std::uint64_t>(epoch));
    sample = static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(sample)));
  }
  if (!packed_.empty()) return {draw.source, epoch, sample};
  return {draw.source, epoch, part.begin + sample * sequence_length_};
}

std::vector<std::int64_t> Dataset::borders(const Location& location) const {
  const TokenSource& source = *parts_.at(static_cast<std::size_t>(location.part)).source;
  std::vector<std::int64_t> places =
      document_ends(source, borders_.eod, location.begin, location.begin + sequence_length_);
  for (std::int64_t& place : places) place -= location.begin;
  return places;
}

void Dataset::read(const Location& location, bool tokens, Sample& sample) const {
  if (!packed_.empty()) return read_row(location, tokens, sample);
  const auto s = static_cast<std::size_t>(sequence_length_);
  const TokenSource& source = *parts_.at(static_cast<std::size_t>(location.part)).source;
  sample.tokens.clear();
  sample.labels.clear();
  sample.document_begins.clear();
  if (tokens) {
    sample.tokens.resize(s + 1);
    source.read(location.begin, sample.tokens);
    sample.labels.assign(sample.tokens.begin() + 1, sample.tokens.end());
    sample.tokens.pop_back();
  }
  if (!borders_.wanted) return;
  std::int64_t begin = 0;
  for (const std::int64_t border : borders(location)) {
    sample.document_begins.resize(static_cast<std::size_t>(std::min(border, sequence_length_)),
                                  begin);
    begin = border;
    if (tokens && borders_.mask_labels) sample.labels[static_cast<std::size_t>(border - 1)] = -1;
  }
  sample.document_begins.resize(s, begin);
}

void Dataset::read_row(const Location& location, bool tokens, Sample& sample) const {
  const auto part = static_cast<std::size_t>(location.part);
  const TokenSource& source = *parts_.at(part).source;
  const PackedRow row = packed_[part]->row(location.begin);
  sample.tokens.clear();
  sample.labels.clear();
  sample.document_begins.clear();
  for (const PackedPiece& piece : row) {
    const auto begin = std::ssize(sample.document_begins);
    const auto end = static_cast<std::size_t>(begin + piece.length);
    sample.document_begins.resize(end, begin);
    if (!tokens) continue;
    const auto more = static_cast<std::size_t>(piece.length + (piece.continues ? 1 : 0));
    std::vector<std::int32_t> own(more);
    source.read(piece.begin, own);
    // The label of the document before lies in this one.
    if (begin > 0 && !borders_.mask_labels && sample.labels.back() == -1) {
      sample.labels.back() = own.front();
    }
    sample.tokens.insert(sample.tokens.end(), own.begin(), own.begin() + piece.length);
    sample.labels.insert(sample.labels.end(), own.begin() + 1, own.end());
    sample.labels.resize(end, -1);
  }
  // Padding is a document of its own.
  const auto s = static_cast<std::size_t>(sequence_length_);
  sample.document_begins.resize(s, std::ssize(sample.document_begins));
  if (!tokens) return;
  sample.tokens.resize(s, 0);
  sample.labels.resize(s, -1);
}

std::int64_t Dataset::counted(const Location& location) const {
  if (packed_.empty()) {
    return sequence_length_ - (borders_.mask_labels ? std::ssize(borders(location)) : 0);
  }
  return packed_[static_cast<std::size_t>(location.part)]->counted(location.begin);
}

}  // namespace trident

// Samples of sequence_length tokens, cut from one or several weighted sources.
//
// A part of n tokens holds floor((n - 1) / s) samples, s the sequence length; sample i is its
// tokens [i·s, i·s + s]: s inputs and their s labels, shifted by one. Parts repeat epoch by epoch.
// With shuffle each epoch of each part goes through a permutation of its own that depends on the
// data seed alone (permutation.h). Nothing is precomputed or stored, so there is no index to build
// on one rank for the others, and every layout of ranks sees the same samples in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datasets/interleave.h"
#include "datasets/token_source.h"

namespace trident {

// Tokens [begin, end) of a source, and how often they are drawn relative to the other parts.
struct DataPart {
  std::shared_ptr<const TokenSource> source;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double weight = 1;
};

struct SampleOrder {
  bool shuffle = true;
  std::uint64_t seed = 0;
  std::string name;  // datasets of other names are shuffled independently ("train", …)
};

// Read-only after construction: one object may serve all ranks of a process.
class Dataset {
 public:
  // RequestError if a part has fewer than s + 1 tokens or the weights are unusable.
  Dataset(std::vector<DataPart> parts, std::int64_t sequence_length, SampleOrder order);

  std::int64_t sequence_length() const { return sequence_length_; }
  const std::vector<DataPart>& parts() const { return parts_; }
  // Samples of a part, in one epoch.
  std::int64_t samples_of(int part) const {
    return samples_of(parts_.at(static_cast<std::size_t>(part)));
  }
  // Samples of all parts together, what train_epochs counts.
  std::int64_t samples_per_epoch() const;

  // Draws parts by weight, from sample 0 on; a cursor of the caller's own.
  Interleave interleave() const;

  struct Location {
    int part;
    std::int64_t epoch;
    std::int64_t begin;  // the first token's position in the part's source
  };
  Location locate(Interleave::Draw draw) const;
  // The s + 1 tokens from location.begin on.
  void read(const Location& location, std::span<std::int32_t> tokens) const;

 private:
  std::int64_t samples_of(const DataPart& part) const {
    return (part.end - part.begin - 1) / sequence_length_;
  }

  std::vector<DataPart> parts_;
  std::int64_t sequence_length_;
  bool shuffle_;
  std::uint64_t key_;
};

}  // namespace trident

// A dataset: samples of sequence_length tokens from one or several weighted sources.
//
// A part of n tokens holds floor((n - 1) / s) samples, where s is the sequence length. Sample i is
// the part's tokens [i·s, i·s + s]: s inputs and their s labels, shifted by one. Parts repeat epoch
// by epoch. With shuffle, each epoch of each part has its own permutation, which depends on the
// data seed, the dataset's name, the part and the epoch (permutation.h). Nothing is precomputed or
// stored, so no rank has to build an index for the others, and every layout of ranks sees the same
// samples in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datasets/interleave.h"
#include "datasets/token_source.h"

namespace trident {

// Tokens [begin, end) of a source. `weight` is relative to the other parts' weights.
struct DataPart {
  std::shared_ptr<const TokenSource> source;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double weight = 1;
};

struct SampleOrder {
  bool shuffle = true;
  std::uint64_t seed = 0;
  std::string name;  // datasets with different names are shuffled independently ("train", …)
};

// Read-only after construction and thread-safe: all ranks of a process may share one object.
class Dataset {
 public:
  // RequestError if a part has fewer than s + 1 tokens or the weights are unusable.
  Dataset(std::vector<DataPart> parts, std::int64_t sequence_length, SampleOrder order);

  std::int64_t sequence_length() const { return sequence_length_; }
  const std::vector<DataPart>& parts() const { return parts_; }
  // The number of samples in one epoch of a part.
  std::int64_t samples_of(int part) const {
    return samples_of(parts_.at(static_cast<std::size_t>(part)));
  }
  // The number of samples in all parts together: one epoch of train_epochs.
  std::int64_t samples_per_epoch() const;

  // Returns a new cursor that draws parts by weight, from sample 0 on. The caller owns it.
  Interleave interleave() const;

  struct Location {
    int part;
    std::int64_t epoch;
    std::int64_t begin;  // the first token's position in the part's source
  };
  Location locate(Interleave::Draw draw) const;
  // Reads the s + 1 tokens from location.begin on. Error if `tokens` has another size; as
  // TokenSource::read for bad tokens.
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

// A dataset: samples of sequence_length tokens from one or several weighted sources.
//
// Samples are ranges of the stream, or rows of packed documents (datasets/packing.h). A part of n
// tokens holds floor((n - 1) / s) ranges, where s is the sequence length. Range i is the part's
// tokens [i·s, i·s + s]: s inputs and their s labels, shifted by one. Parts repeat epoch
// by epoch. With shuffle, each epoch of each part has its own permutation, which depends on the
// data seed, the dataset's name, the part and the epoch (permutation.h). Every layout of ranks sees
// the same samples in the same order. No rank builds an index for the others: of ranges nothing is
// precomputed, of packed documents each process keeps a few bytes a row.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datasets/interleave.h"
#include "datasets/packing.h"
#include "datasets/token_source.h"

namespace trident {

// Tokens [begin, end) of a source. `weight` is relative to the other parts' weights.
struct DataPart {
  std::shared_ptr<const TokenSource> source;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double weight = 1;
};

// How samples consist of documents. The borders are those of the source where it has several
// documents; else a document ends with each token `eod`.
struct DocumentBorders {
  bool wanted = false;
  bool mask_labels = false;  // labels in another document than their input don't count
  std::int64_t window = 0;   // samples are the rows of PackedDocuments; 0: ranges of the stream
  std::optional<std::int32_t> eod = {};

  bool are_needed() const { return wanted || window > 0; }
};

// A sample's s inputs and labels.
struct Sample {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;  // -1: doesn't count
  // The place in the sample at which each input's document begins; {}: one document.
  std::vector<std::int64_t> document_begins;
};

struct SampleOrder {
  bool shuffle = true;
  std::uint64_t seed = 0;
  std::string name;  // datasets with different names are shuffled independently ("train", …)
};

// Read-only after construction and thread-safe: all ranks of a process may share one object.
class Dataset {
 public:
  // RequestError if a part has fewer than s + 1 tokens or the weights are unusable, or if borders
  // of documents are wanted and not known.
  Dataset(std::vector<DataPart> parts, std::int64_t sequence_length, SampleOrder order,
          DocumentBorders borders = {});

  std::int64_t sequence_length() const { return sequence_length_; }
  const std::vector<DataPart>& parts() const { return parts_; }
  // The number of samples in one epoch of a part.
  std::int64_t samples_of(int part) const;
  // The number of samples in all parts together: one epoch of train_epochs.
  std::int64_t samples_per_epoch() const;

  // Returns a new cursor that draws parts by weight, from sample 0 on. The caller owns it.
  Interleave interleave() const;

  struct Location {
    int part;
    std::int64_t epoch;
    std::int64_t begin;  // the first token's position in the part's source, or the row's number
  };
  Location locate(Interleave::Draw draw) const;
  // Reads a sample, in the memory of `sample`; with `tokens` false only where documents begin. As
  // TokenSource::read for bad tokens.
  void read(const Location& location, bool tokens, Sample& sample) const;
  // The token by which documents are known; nullopt where the sources know them.
  std::optional<std::int32_t> end_of_document() const { return borders_.eod; }
  // Whether labels of samples may not count.
  bool masks_labels() const { return borders_.mask_labels || borders_.window > 0; }
  // The labels of a sample that count.
  std::int64_t counted(const Location& location) const;

 private:
  // The places within a range of the stream, 1 to s, at which a document begins.
  std::vector<std::int64_t> borders(const Location& location) const;
  void read_row(const Location& location, bool tokens, Sample& sample) const;

  std::vector<DataPart> parts_;
  std::int64_t sequence_length_;
  bool shuffle_;
  std::uint64_t key_;
  DocumentBorders borders_;
  std::vector<std::unique_ptr<PackedDocuments>> packed_;  // by part
};

}  // namespace trident

// Builds the datasets of a run from the config's `data` section.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datasets/dataset.h"

namespace trident {

struct SourceSpec {
  std::string path;  // as for open_token_source()
  double weight = 1;
};

struct NamedSources {
  std::string name;  // "" if the config gives one plain list of sources
  std::vector<SourceSpec> sources;
};

struct DataSpec {
  std::vector<SourceSpec> train;
  std::vector<NamedSources> validation;
  // Shares of each training source for training, validation and test, in stream order. A
  // validation share and `validation` exclude each other. Only evaluation reads the test part.
  std::array<double, 3> split = {1, 0, 0};
  std::int64_t sequence_length = 0;
  std::int64_t vocab_size = 0;   // without padding
  bool vocab_size_given = true;  // false: a default for text; .bin/.idx pairs are then an error
  TextAccess texts = {};         // without an encoder: the byte tokenizer and no cache
  bool shuffle = true;
  std::uint64_t seed = 0;
  // Whether samples are separated into documents. The token that ends one is the encoder's.
  DocumentBorders documents = {};
  bool test = false;  // also builds the split's test part
};

struct Datasets {
  std::shared_ptr<const Dataset> train;
  std::vector<std::pair<std::string, std::shared_ptr<const Dataset>>> validation;  // by name
  std::vector<std::pair<std::string, std::shared_ptr<const Dataset>>> test;        // of the split
  // Paths of texts whose tokens aren't in the cache. If there is one, no dataset is built.
  std::vector<std::string> untokenized;
};

// The edges of the three parts in a stream of n tokens: training is [0, edges[0]), validation
// [edges[0], edges[1]), test [edges[1], n). Each edge is its share of n, rounded to nearest.
// RequestError if a share is negative or all are 0.
std::array<std::int64_t, 2> split_edges(std::int64_t tokens, const std::array<double, 3>& split);

// Opens and checks every source. Throws one RequestError with all problems, each with its place in
// the config. The shuffle flag also applies to validation sets, so a few batches are a fair sample.
Datasets build_datasets(const DataSpec& spec);

}  // namespace trident

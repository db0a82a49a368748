// The datasets of a run, from the config's `data` section.
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
  std::string path;  // as open_token_source()
  double weight = 1;
};

struct NamedSources {
  std::string name;  // "" for the one set of a plain list
  std::vector<SourceSpec> sources;
};

struct DataSpec {
  std::vector<SourceSpec> train;
  std::vector<NamedSources> validation;
  // Shares of each training source for training, validation and test, in stream order. A
  // validation share and `validation` exclude each other. The test part is read by evaluation
  // alone.
  std::array<double, 3> split = {1, 0, 0};
  std::int64_t sequence_length = 0;
  std::int64_t vocab_size = 0;   // without padding
  bool vocab_size_given = true;  // else a default for text, with which tokens are refused
  TextAccess texts = {};         // without an encoder: the byte tokenizer, and no cache
  bool shuffle = true;
  std::uint64_t seed = 0;
  bool test = false;  // builds the split's test part, too
};

struct Datasets {
  std::shared_ptr<const Dataset> train;
  std::vector<std::pair<std::string, std::shared_ptr<const Dataset>>> validation;  // by name
  std::vector<std::pair<std::string, std::shared_ptr<const Dataset>>> test;        // of the split
  std::vector<std::string> untokenized;  // paths of texts; then there are no datasets
};

// The edges of the three parts in a stream of n tokens: training is [0, edges[0]), validation
// [edges[0], edges[1]), test [edges[1], n). Each edge is its share of n, rounded to nearest.
std::array<std::int64_t, 2> split_edges(std::int64_t tokens, const std::array<double, 3>& split);

// Opens and checks every source. RequestError with all problems at once, each with its place in
// the config. Validation sets are shuffled by the same flag: a few batches are then a fair sample.
Datasets build_datasets(const DataSpec& spec);

}  // namespace trident

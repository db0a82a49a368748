// What the config has to know of the things that its names stand for: schedules, models,
// optimizers, transports, all-reduce algorithms. Each room has a table of its kinds, whose rows
// begin with these rules and go on with what makes the thing (ScheduleKind in
// scheduler/schedules.h, OptimizerKind in engine/optimizer/optimizer_registry.h, ...). Choices,
// defaults, checks, schema and reference page read the rules, so no name stands anywhere but in its
// row.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "settings/problems.h"

namespace trident {

struct Config;

// How many chunks a rank holds in a pipeline schedule: one; two, along a V; several, 2 by default;
// any number, which the schedule chooses.
enum class ChunkRule : std::uint8_t { one, two, several, any };

struct ScheduleConstraints {
  std::string name = {};
  ChunkRule chunks = ChunkRule::one;
  // What a config gets that names none: one such row for one chunk a rank, one for several.
  bool usual = false;
  // Runs groups of micro-batches through a chunk before it turns to the next; it then needs several
  // chunks and ranks, and `ungrouped` names the kind to take for one chunk.
  bool grouped = false;
  std::string ungrouped = {};
  bool flushed = true;  // an iteration's micro-batches all end before its update
  // Each stage updates by itself after each micro-batch: nobody knows a gradient of all stages.
  bool each_microbatch = false;
  bool searched = false;  // its lists follow the sizes at hand, not one rule
};

enum class Positions : std::uint8_t { learned, rotary, other };

struct ModelConstraints {
  std::string name = {};
  std::string doc = {};  // what comes after "NAME ", for people
  Positions positions = Positions::other;
  bool grouped_queries = true;
  bool gated_mlp = false;  // SwiGLU: ffn_hidden_size has to be given
  bool tied = true;        // tie_word_embeddings' default
  // Its embedding may have a padding token, whose row gets no gradient by look-up.
  bool padding_row = false;
  // Rules of its own, after all others.
  std::function<void(const Config&, ConfigProblems&)> check = {};
};

struct OptimizerConstraints {
  std::string name = {};
  std::string doc = {};     // what comes after "NAME ", for people
  double weight_decay = 0;  // the default
  // Parameters that it reads beside lr and weight_decay.
  bool betas = false, eps = false, momentum = false;
};

struct TransportConstraints {
  std::string name = {};
  std::string doc = {};                   // what comes after "NAME ", for people
  bool cpu = true, gpu = false;           // whose tensors it carries
  bool gpu_for_each_rank = false;         // every rank has a GPU for itself
  bool threads = true, processes = true;  // what its ranks may be
};

struct AlgorithmConstraints {
  std::string name = {};
  bool in_rank_order = false;  // adds so, whatever the number of ranks
  bool gpu = false;            // also for tensors of GPUs
};

// All of them, in the order in which they are shown. Made from the rooms' tables by
// constraints_of() (engine/setup/registry.h), whose rows the same object holds.
struct ConfigConstraints {
  virtual ~ConfigConstraints() = default;

  std::vector<ScheduleConstraints> schedules;
  std::vector<ModelConstraints> models;
  std::vector<OptimizerConstraints> optimizers;
  std::vector<TransportConstraints> transports;
  std::vector<AlgorithmConstraints> algorithms;
  // What pipeline.layer_split "auto" stands for: the layers of each stage. The config is filled in
  // but for batch sizes that are derived.
  std::function<std::vector<std::int64_t>(const Config&)> layer_split;
};

// The rules of what a loaded config names.
const ScheduleConstraints& schedule_constraints(const Config&);
const ModelConstraints& model_constraints(const Config&);
const OptimizerConstraints& optimizer_constraints(const Config&);
const TransportConstraints& transport_constraints(const Config&);

// The row of this name; null: none.
template <class Row>
const Row* find_row(const std::vector<Row>& rows, std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

// The names of the rows for which `fits`, a member or a function of a row, is true.
template <class Row, class Fits>
std::vector<std::string> names_where(const std::vector<Row>& rows, const Fits& fits) {
  std::vector<std::string> names;
  for (const Row& row : rows) {
    if (std::invoke(fits, row)) names.push_back(row.name);
  }
  return names;
}

template <class Row>
std::vector<std::string> names_of(const std::vector<Row>& rows) {
  return names_where(rows, [](const Row&) { return true; });
}

// Of the schedule that a config gets which names none; "" where the table has no such row.
template <class Row>
std::string usual_schedule(const std::vector<Row>& rows, bool several_chunks) {
  const auto names = names_where(rows, [&](const Row& row) {
    return row.usual && (row.chunks == ChunkRule::several) == several_chunks;
  });
  return names.empty() ? "" : names.front();
}

}  // namespace trident

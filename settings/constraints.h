// Constraints on the config by the names in it: schedules, models, optimizers, transports and
// all-reduce algorithms.
//
// Each library has a registry. A row of the registry begins with the constraints here; its other
// members make the object (ScheduleKind in scheduler/schedules.h, OptimizerKind in
// engine/optimizer/optimizer_registry.h, ...). Choices, defaults, checks, schema and reference page
// read the constraints, so each name is written only in its row.
//
// The rows are constant after start-up; any thread may read them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "settings/problems.h"

namespace trident {

struct Config;

// The number of chunks that a rank holds in a pipeline schedule: one; two, placed along a V;
// several (2 by default); or any number, which the schedule chooses.
enum class ChunkRule : std::uint8_t { one, two, several, any };

struct ScheduleConstraints {
  std::string name = {};
  ChunkRule chunks = ChunkRule::one;
  // The default where a config names no schedule: one row for one chunk a rank, one for several.
  bool is_default = false;
  // Runs groups of micro-batches through a chunk before it turns to the next chunk. The schedule
  // then needs several chunks and ranks; `ungrouped` names the schedule to use for one chunk.
  bool grouped = false;
  std::string ungrouped = {};
  bool flushed = true;  // all micro-batches of an iteration end before its update
  // Each stage updates by itself after each micro-batch, so no gradient of all stages exists.
  bool each_microbatch = false;
  bool searched = false;  // a search makes its action lists for the sizes at hand; no formula does
};

enum class Positions : std::uint8_t { learned, rotary, other };
enum class WindowRule : std::uint8_t { none, all_layers, any_layers };

enum class ExpertLayers : std::uint8_t { none, all, any, last };

// The experts that a model may have in place of its MLP (model.moe).
struct ExpertConstraints {
  ExpertLayers layers = ExpertLayers::none;
  std::string score_function = "softmax";  // router_score_function
  bool norm_topk_prob = false;             // its default
  bool fixed_norm = false;                 // no other value is possible
  bool scaling = false;                    // router_topk_scaling_factor
  bool groups = false;                     // router_num_groups, router_group_topk
  bool shared = false;                     // a shared expert is possible
  bool shared_gate = false;                // there is one, with a gate
  bool shared_multiple = false;            // there is one, a multiple of an expert's width
  bool bias = false;                       // router_enable_expert_bias
  bool projection_biases = false;          // of the router's and the experts' projections
  bool fp32_router = false;  // its folders keep the router fp32: router_dtype's default
};

struct ModelConstraints {
  std::string name = {};
  std::string doc = {};  // the text after "NAME " in documentation and messages
  Positions positions = Positions::other;
  bool grouped_queries = true;
  bool gated_mlp = false;  // SwiGLU: ffn_hidden_size has to be given
  bool tied = true;        // tie_word_embeddings' default
  // The linear layers have biases if model.attention_bias or model.mlp_bias asks for them.
  bool optional_attention_bias = false, optional_mlp_bias = false;
  // head_dim may differ from hidden_size / num_attention_heads; whether that must be whole still
  // (transformers' LlamaConfig needs it).
  bool free_head_dim = false, heads_divide_width = true;
  bool qk_norm = false;  // queries and keys are normed, each head by itself or all together
  // Latent attention, with kv_lora_rank and the sizes beside it; head_dim is qk_pos_emb_head_dim.
  bool latent_attention = false;
  bool multi_token = false;  // it may have layers that predict further tokens
  // Which layers may have a sliding window.
  WindowRule window = WindowRule::none;
  ExpertConstraints experts = {};
  // The embedding may have a padding token. The look-up adds no gradient to that token's row.
  bool padding_row = false;
  // The model's own checks, which run after all others.
  std::function<void(const Config&, ConfigProblems&)> check = {};
};

struct OptimizerConstraints {
  std::string name = {};
  std::string doc = {};     // the text after "NAME " in documentation and messages
  double weight_decay = 0;  // the default
  // Parameters that it reads in addition to lr and weight_decay.
  bool betas = false, eps = false, momentum = false;
};

struct TransportConstraints {
  std::string name = {};
  std::string doc = {};                   // the text after "NAME " in documentation and messages
  bool cpu = true, gpu = false;           // the devices whose tensors it carries
  bool gpu_for_each_rank = false;         // every rank has a GPU of its own
  bool threads = true, processes = true;  // whether ranks may be threads, or processes
};

struct AlgorithmConstraints {
  std::string name = {};
  bool in_rank_order = false;  // adds in rank order for every number of ranks
  bool gpu = false;            // also serves tensors on GPUs
};

// The constraints of all names, in the order in which messages list them. constraints_of()
// (engine/setup/registry.h) makes this object from the libraries' registries. The object that it
// makes also holds the rows themselves.
struct ConfigConstraints {
  virtual ~ConfigConstraints() = default;

  std::vector<ScheduleConstraints> schedules;
  std::vector<ModelConstraints> models;
  std::vector<OptimizerConstraints> optimizers;
  std::vector<TransportConstraints> transports;
  std::vector<AlgorithmConstraints> algorithms;
  // Computes pipeline.layer_split "auto": the layers of each stage. The config is filled in except
  // for derived batch sizes.
  std::function<std::vector<std::int64_t>(const Config&)> layer_split;
};

// The constraints of the names in a loaded config. Throw Error where the config was not loaded or
// the registry has no such row.
const ScheduleConstraints& schedule_constraints(const Config&);
const ModelConstraints& model_constraints(const Config&);
const OptimizerConstraints& optimizer_constraints(const Config&);
const TransportConstraints& transport_constraints(const Config&);

// The row of this name; nullptr if there is none.
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

// The name of the default schedule for one chunk a rank, or for several; "" where no row is marked
// as the default for it.
template <class Row>
std::string default_schedule(const std::vector<Row>& rows, bool several_chunks) {
  const auto names = names_where(rows, [&](const Row& row) {
    return row.is_default && (row.chunks == ChunkRule::several) == several_chunks;
  });
  return names.empty() ? "" : names.front();
}

}  // namespace trident

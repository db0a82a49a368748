// The configuration of a training run: what the JSON file says, with every default filled in.
//
// Members are named exactly as the keys of the file; docs/config.md (generated from the field
// table, settings/fields.h) says what each one means, its range and its unit. The initialisers here
// are the constant defaults; defaults that follow from other keys are marked "derived" and are
// filled in by load_config, so after loading every number is final. In a loaded Config 0 and ""
// mean "none" where a comment says so, nowhere else.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/axes.h"

namespace trident {

struct ConfigConstraints;  // settings/constraints.h

struct ModelConfig {
  std::string architecture = "gpt2";
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_query_groups = 0;         // derived: num_attention_heads
  std::int64_t ffn_hidden_size = 0;          // derived: 4·hidden_size; some models need it given
  std::int64_t max_position_embeddings = 0;  // derived: data.sequence_length
  std::int64_t vocab_size = 0;               // derived: 256 for the byte tokenizer
  std::int64_t make_vocab_size_divisible_by = 128;
  bool tie_word_embeddings = true;  // derived: by the model
  double norm_epsilon = 1e-5;
  double rotary_base = 10000.0;
  double init_method_std = 0.02;
  double hidden_dropout = 0.0;
  double attention_dropout = 0.0;
  std::optional<std::int64_t> pad_token_id =
      {};  // its row of the embedding gets no look-up gradient
  bool operator==(const ModelConfig&) const = default;
};

struct ParallelConfig {
  std::int64_t data_parallel_size = 0;  // derived from the number of ranks, else 1
  std::int64_t tensor_model_parallel_size = 1;
  std::int64_t pipeline_model_parallel_size = 1;
  // Chunks per pipeline rank; 2 where the schedule needs several.
  std::int64_t virtual_pipeline_model_parallel_size = 1;
  bool sequence_parallel = false;
  bool tp_comm_overlap = false;
  std::string rank_order = "tp-dp-pp";  // fastest-varying axis first
  // Of a program that links the library; not asked for in a file (LoadOptions).
  std::vector<MeshAxis> more_axes = {};

  static ParallelConfig one_rank() { return {.data_parallel_size = 1}; }
  // All of them: data, tensor, pipeline, then more_axes.
  std::vector<MeshAxis> axes() const;
  // Ranks of each such group.
  std::int64_t ranks(Group group) const { return group_size(axes(), group); }
  bool operator==(const ParallelConfig&) const = default;
};

struct PipelineConfig {
  std::string schedule = {};       // derived: the usual one for one chunk a rank, or for several
  std::string schedule_file = {};  // "": none
  std::int64_t microbatch_group_size_per_vp_stage = 0;  // 0: the schedule's own rule
  // Layers of each of the p·v stages, in stage order; "even" and "auto" are numbers once loaded.
  std::vector<std::int64_t> layer_split = {};
  bool operator==(const PipelineConfig&) const = default;
};

// global_batch_size = micro_batch_size · gradient_accumulation_steps · ranks that get different
// samples (data_parallel_size).
struct BatchConfig {
  std::int64_t global_batch_size = 0;
  std::int64_t micro_batch_size = 0;
  std::int64_t gradient_accumulation_steps = 0;
  // Smaller batches at first: {the first, by how much they grow, samples until global_batch_size is
  // reached}; {}: all alike.
  std::vector<std::int64_t> rampup_batch_size = {};
  bool operator==(const BatchConfig&) const = default;
};

struct ZeroConfig {
  std::int64_t stage = 0;
  std::int64_t reduce_bucket_size = 5'000'000;     // elements
  std::int64_t allgather_bucket_size = 5'000'000;  // elements
  bool overlap_comm = true;
  bool reduce_each_micro_batch = false;
  std::int64_t stage3_prefetch_bucket_size = 50'000'000;      // elements
  std::int64_t stage3_param_persistence_threshold = 100'000;  // elements
  bool operator==(const ZeroConfig&) const = default;
};

struct PrecisionConfig {
  std::string dtype = "fp32";  // of the computation; master weights and moments are fp32
  bool tf32 = false;
  std::string grad_accum_dtype = "fp32";
  double loss_scale = 0.0;  // 0: dynamic
  std::int64_t initial_scale_power = 16;
  std::int64_t loss_scale_window = 1000;
  std::int64_t hysteresis = 2;
  double min_loss_scale = 1.0;
  bool operator==(const PrecisionConfig&) const = default;
};

struct ActivationCheckpointingConfig {
  std::string granularity = "none";
  std::int64_t num_layers = 1;
  bool operator==(const ActivationCheckpointingConfig&) const = default;
};

struct OptimizerParams {
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;  // derived: by the optimizer
  double momentum = 0.0;
  bool operator==(const OptimizerParams&) const = default;
};

// Parameters with a rate or a weight decay of their own.
struct ParamGroup {
  std::string params = {};  // a pattern of their names
  double lr_mult = 1.0;
  std::optional<double> weight_decay = {};  // of all of them; none: as without the group
  bool operator==(const ParamGroup&) const = default;
};

struct OptimizerConfig {
  std::string type = "AdamW";
  OptimizerParams params = {};
  std::vector<ParamGroup> param_groups = {};  // the first that matches counts
  bool operator==(const OptimizerConfig&) const = default;
};

struct LrSchedulerConfig {
  // constant linear cosine cosine_with_restarts wsd polynomial exponential piecewise
  std::string type = "constant";
  std::int64_t warmup_iters = 0;
  double warmup_ratio = 0.0;     // left only while training.train_iters is 0; see set_train_iters
  std::int64_t decay_iters = 0;  // derived: training.train_iters
  double min_lr = 0.0;
  double power = 1.0;
  double gamma = 0.1;
  std::vector<std::int64_t> milestones = {};  // iterations, ascending
  std::int64_t num_cycles = 1;
  double cycle_mult = 1.0;
  std::int64_t wsd_decay_iters = 0;  // derived: a tenth of decay_iters
  std::string wsd_decay_style = "linear";
  bool operator==(const LrSchedulerConfig&) const = default;
};

struct DataSource {
  std::string path = {};  // a text file, or the common prefix of a .bin/.idx pair
  double weight = 1.0;
  bool operator==(const DataSource&) const = default;
};

struct ValidationSet {
  std::string name = {};  // "" where data.validation is a plain list
  std::vector<DataSource> sources = {};
  bool operator==(const ValidationSet&) const = default;
};

struct TokenizerConfig {
  std::string type = "byte";      // "byte", "file"
  std::string path = {};          // tokenizer.json of type "file", else ""
  std::string errors = "strict";  // of text that isn't UTF-8: "strict", "replace"
  std::string eos_token = {};     // follows each document; "": the tokenizer's own
  bool operator==(const TokenizerConfig&) const = default;
};

struct DataConfig {
  std::vector<DataSource> train = {};
  std::vector<ValidationSet> validation = {};
  std::string split = {};  // parts for training, validation, test: "949,50,1"; "": all for training
  TokenizerConfig tokenizer = {};
  std::string json_key = "text";              // of a document's text in .jsonl and .parquet
  bool append_eod = true;                     // end of text after each document
  std::string cache_path = ".trident-cache";  // folder of the tokens of texts
  std::int64_t sequence_length = 0;           // derived: model.max_position_embeddings
  bool shuffle = true;
  std::int64_t seed = 1234;

  // `split` as three fractions that sum to 1: training, validation, test ({1, 0, 0} for "").
  std::array<double, 3> split_fractions() const;
  bool operator==(const DataConfig&) const = default;
};

struct TrainingConfig {
  std::int64_t train_iters = 0;   // 0: by train_epochs, which the trainer turns into iterations
  std::int64_t train_epochs = 0;  // 0: by train_iters; exactly one of the two is set
  std::int64_t seed = 1234;
  std::int64_t eval_interval = 100;  // 0: only after the last iteration
  std::int64_t eval_iters = 10;      // global batches of each evaluation
  bool deterministic = true;
  double label_smoothing = 0.0;
  double ema_decay = 0.0;               // of the weights' moving average; 0: none is kept
  std::string on_non_finite = "stop";   // "stop", "skip"
  std::int64_t max_skipped_steps = 10;  // in a row
  bool operator==(const TrainingConfig&) const = default;
};

// Checkpoints in memory or on a disk of the node's own.
struct LocalCheckpointConfig {
  std::string dir = {};
  std::int64_t interval = 0;
  std::int64_t replicas = 1;  // at ranks of other nodes
  double mtbf_hours = 0;      // of failures that they don't survive; 0: as for the whole job
  bool operator==(const LocalCheckpointConfig&) const = default;
};

struct CheckpointConfig {
  // A Hugging Face directory, a checkpoint, the iteration of one in `save`, or "auto"; "": start
  // from initial weights, where there is no checkpoint in `save`.
  std::string load = {};
  // What is left out of the checkpoint that `load` names: "optimizer", "iteration", "data".
  std::vector<std::string> exclude_from_loading = {};
  std::map<std::string, std::string> key_mapping = {};  // names of tensors there: names here
  bool grow_vocabulary = false;
  std::string resume = "auto";
  std::string save = {};  // directory of the final weights and the checkpoints; "": not saved
  bool overwrite = false;
  std::int64_t save_interval = 0;
  std::int64_t save_total_limit = 0;
  std::int64_t save_every_keep = 0;
  bool keep_best = false;
  std::int64_t max_writers = 0;
  std::int64_t min_slice = std::int64_t{1} << 20;
  bool asynchronous = false;
  std::int64_t staging_limit = std::int64_t{1} << 30;
  bool device_copies = true;
  std::int64_t niceness = 10;
  std::string io_priority = "low";  // "usual", "low", "idle"
  double mtbf_hours = 0;            // of the whole job; 0: not stated
  LocalCheckpointConfig local = {};
  bool operator==(const CheckpointConfig&) const = default;
};

// The override by which the data-parallel size follows from LoadOptions::ranks.
inline constexpr const char* size_follows_ranks = "parallel.data_parallel_size=\"auto\"";
// And that by which it is the least.
inline constexpr const char* least_size = "parallel.data_parallel_size=1";
// What a layout sets beside "parallel", as "zero_optimization.stage". Where "parallel" is "auto",
// those that a config gives stay.
const std::vector<std::string>& layout_keys();

// Whether checkpoint.load is the number of an iteration.
bool is_iteration(const std::string& load);

struct RuntimeConfig {
  std::string device = "auto";        // after loading never "auto"
  std::string transport = "auto";     // after loading never "auto"
  std::int64_t ranks_per_node = 0;    // 0: nodes are hosts, as the transport finds them
  std::int64_t threads_per_rank = 0;  // derived: max(1, cores / ranks on this machine)
  double timeout_seconds = 600.0;
  std::string machine = {};  // a machine file, by which parallel "auto" is chosen; "": none
  std::string collective_algorithm = "auto";  // after loading "auto" only if not deterministic
  std::string bf16_products = "auto";         // "auto", "native", "widened"
  bool operator==(const RuntimeConfig&) const = default;
};

struct LoggingConfig {
  std::string dir = {};  // derived: runs/<name of the config file without its extension>
  bool overwrite = false;
  std::int64_t log_interval = 0;  // 0: as often as the place of the lines suggests
  bool tensorboard = true;
  bool trace = true;
  std::vector<std::int64_t> trace_at = {};           // iterations, from 1; {}: the second
  std::vector<std::int64_t> dump_gradients_at = {};  // iterations, from 1
  bool operator==(const LoggingConfig&) const = default;
};

struct Config {
  ModelConfig model = {};
  ParallelConfig parallel = {};
  PipelineConfig pipeline = {};
  BatchConfig batch = {};
  ZeroConfig zero_optimization = {};
  PrecisionConfig precision = {};
  ActivationCheckpointingConfig activation_checkpointing = {};
  OptimizerConfig optimizer = {};
  double gradient_clipping = 1.0;  // largest global gradient norm; 0: no clipping
  LrSchedulerConfig scheduler = {};
  DataConfig data = {};
  TrainingConfig training = {};
  CheckpointConfig checkpoint = {};
  RuntimeConfig runtime = {};
  LoggingConfig logging = {};
  // What its names stand for, as LoadOptions said.
  std::shared_ptr<const ConfigConstraints> constraints = {};

  // Ranks in all: the product of the axes.
  std::int64_t world_size() const;
  // Micro-batches that one pipeline runs per step: gradient_accumulation_steps.
  std::int64_t num_microbatches() const;
  // Stages in all: pipeline ranks · chunks per rank (p·v).
  std::int64_t stages() const;
  // vocab_size rounded up to a multiple of make_vocab_size_divisible_by · tensor size
  // (Megatron-LM's rule), so that every tensor rank holds an equal slice.
  std::int64_t padded_vocab_size() const;
  // Size of one attention head: hidden_size / num_attention_heads.
  std::int64_t head_dim() const;

  bool operator==(const Config&) const = default;
};

// What the file can't know.
struct LoadOptions {
  // What names may stand for: built_in_constraints() (engine/setup/registry.h), or with rows of the
  // program's own. Has to be given.
  std::shared_ptr<const ConfigConstraints> constraints = {};
  // Axes beside the config's own, with their sizes.
  std::vector<MeshAxis> more_axes = {};
  // Ranks that run (--ranks, or the size of the MPI world); resolves data_parallel_size "auto".
  std::optional<std::int64_t> ranks = {};
  // Ranks on this machine; by default all of them.
  std::optional<std::int64_t> local_ranks = {};
  // Cores that the ranks of this machine share.
  std::int64_t cores = 1;
  // What batch.micro_batch_size "auto" stands for; who knows the memory finds it
  // (planner/plan/fit.h). 0: all sequences of a data-parallel rank.
  std::optional<std::int64_t> micro_batch_size = {};
  // What runtime.transport "auto" stands for: "local", or "mpi" under mpirun.
  std::string transport = "local";
  // What runtime.device "auto" stands for: "cpu", or "cuda" where there is a GPU.
  std::string device = "cpu";
  // The "model" section of the weights in the folder that checkpoint.load names, as JSON text:
  // what the config leaves out of its own. RequestError where there are none. nullptr: no folder
  // is read.
  std::function<std::string(const std::string& load)> saved_model = {};
  // GPUs of this machine; transport "auto" is nccl where there is one for each rank.
  std::int64_t gpus = 0;
};

struct LoadedConfig {
  Config config = {};
  // What was asked for, as JSON text: the file with its overrides, no default filled in.
  std::string written = {};
  std::string filled_in = {};  // config_to_json(config, written)
  // "parallel" is "auto": `config` is that of one rank that runs a sample at a time, without the
  // layout_keys() that `written` may have, and with as many threads as each of LoadOptions::ranks
  // gets. Who knows the machine chooses (run/startup/auto_layout.h).
  bool parallel_is_auto = false;
  bool micro_batch_is_auto = false;
  bool accumulation_is_given = false;  // so that "auto" is one size
  bool device_is_auto = false;
  std::string why_layout = {};  // for who knows the machine: how parallel "auto" was chosen
  // For who knows the machine: bytes a rank that no micro-batch size fits which is "auto"; else 0.
  std::int64_t fits_none = 0;
  std::string why_cpu = {};  // for who knows the machine: why "auto" took the CPU
};

// Reads, overrides, fills in and checks a config. `overrides` are "a.b=value" strings (an array
// element by its number: "data.train.0.path=x"); a value that isn't JSON is a string. Throws
// RequestError with every problem, each as "config: /json/path: what was got, the rule; the
// choice".
LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                         const LoadOptions& options);

// The text of a config's file, which may be a pipe, with those that it extends: paths from its own
// folder; later ones and the file itself win, key by key. RequestError where one can't be read.
std::string read_config(const std::string& path);
// Whether, with these overrides, its "parallel" is "auto"; false where that can't be read.
bool layout_is_auto(const std::string& text, const std::vector<std::string>& overrides);

// The same from JSON text. `name` stands for the file in errors and in logging.dir's default.
LoadedConfig parse_config(std::string_view text, const std::vector<std::string>& overrides,
                          const LoadOptions& options, const std::string& name = "config.json");

// Sets training.train_iters and what follows from it: scheduler.warmup_iters (from warmup_ratio)
// and scheduler.decay_iters where it isn't given. For a trainer that has turned train_epochs into
// iterations. Throws RequestError where the learning-rate schedule doesn't fit.
void set_train_iters(Config& config, std::int64_t train_iters);

// `config` as indented JSON, every key present. With `written` (LoadedConfig::written), "derived"
// tells which values nobody wrote but were derived, and what was written in their place. That loads
// back as the same Config under any circumstances; what overrides change, or any change of the file
// by hand, what follows from it is derived anew.
std::string config_to_json(const Config& config);
std::string config_to_json(const Config& config, const std::string& written);
// Whether somebody wrote the key at this JSON pointer: `written` has it, and not as null. True of
// "", where nobody knows.
bool is_written(const std::string& written, std::string_view path);

// The JSON Schema (draft 2020-12) of a config file, indented.
std::string config_schema(const ConfigConstraints&);

// A config's text, JSON in the order of its keys, with a comment above each: what it means.
std::string annotated_config(const std::string& config, const ConfigConstraints&);

// The reference page, docs/config.md.
std::string config_reference_markdown(const ConfigConstraints&);

}  // namespace trident

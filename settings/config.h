// The configuration of a training run: the values of a JSON file, with every default filled in.
//
// Members are named exactly as the keys of the file. docs/config.md, which is generated from the
// field table (settings/fields.h), describes each key with its range and its unit. The initialisers
// here are the constant defaults. load_config fills in the defaults that follow from other keys,
// which are marked "derived"; after loading every number is final. In a loaded Config 0 and ""
// mean "none" only where a comment says so.
//
// A Config is a value. Loading is local to the caller: no function here is collective, and all may
// be called from any thread. A config with problems throws RequestError (base/error.h).
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

// How the wavelengths of rotary positions are stretched for longer texts than the model was trained
// on, with the keys of transformers' rope_scaling. Which keys a type reads: settings/rope_types.h.
struct RopeScalingConfig {
  std::string rope_type = "default";
  double factor = 0;  // 0: not given; every type but "default" needs it
  std::int64_t original_max_position_embeddings = 0;  // derived: max_position_embeddings
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  double beta_fast = 32.0, beta_slow = 1.0;
  bool truncate = true;
  double attention_factor = 0;  // 0: from mscale and mscale_all_dim, or from the factor alone
  double mscale = 0, mscale_all_dim = 0;  // 0: not given
  bool operator==(const RopeScalingConfig&) const = default;
};

// A mixture of experts in place of the MLP (models/experts.h), with Megatron-LM's names of keys.
struct MoeConfig {
  std::int64_t num_experts = 0;  // 0: no layer has experts
  std::int64_t router_topk = 2;
  std::int64_t ffn_hidden_size = 0;                  // derived: model.ffn_hidden_size
  std::int64_t shared_expert_intermediate_size = 0;  // 0: no shared expert
  bool shared_expert_gate = false;                   // derived: by the model
  // One number for each layer, 1 where it has experts, else 0; derived: all have. A file may give
  // a number n for every n-th layer, beginning with the first.
  std::vector<std::int64_t> layer_freq = {};
  std::string router_score_function = "softmax";  // derived: by the model
  bool norm_topk_prob = false;                    // derived: by the model
  double router_topk_scaling_factor = 1.0;
  std::int64_t router_num_groups = 1, router_group_topk = 1;
  // "seq_aux_loss", "aux_loss", "none"
  std::string router_load_balancing_type = "seq_aux_loss";
  double aux_loss_coeff = 1e-3;
  double z_loss_coeff = 0.0;
  bool router_enable_expert_bias = false;  // derived: by the model
  double router_bias_update_rate = 1e-3;
  std::string router_dtype = "model";                 // "model", "fp32"; derived: by the model
  std::optional<double> expert_capacity_factor = {};  // none: no token is dropped
  std::string token_drop_policy = "position";
  bool balanced_routing = false;  // no key: for measurements, see models/balanced_routing.h
  bool operator==(const MoeConfig&) const = default;

  bool has_experts() const { return num_experts > 0; }
  // The layers with experts, ascending.
  std::vector<std::int64_t> layers() const;
};

struct ModelConfig {
  std::string architecture = "gpt2";
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_query_groups = 0;         // derived: num_attention_heads
  std::int64_t head_dim = 0;                 // derived: hidden_size / num_attention_heads
  std::int64_t ffn_hidden_size = 0;          // derived: 4·hidden_size; some models need it given
  std::int64_t max_position_embeddings = 0;  // derived: data.sequence_length
  std::int64_t vocab_size = 0;               // derived: 256 for the byte tokenizer
  std::int64_t make_vocab_size_divisible_by = 128;
  bool tie_word_embeddings = true;  // derived: by the model
  bool attention_bias = false;      // of queries, keys, values and attention's output
  bool mlp_bias = false;
  bool qk_norm = false;  // derived: by the model
  // Of latent attention: the sizes of the queries' latent (0: they have none) and of that of keys
  // and values, and the elements of a query or key head without positions, of its rotary part and
  // of a value head.
  std::int64_t q_lora_rank = 0, kv_lora_rank = 0;
  std::int64_t qk_head_dim = 0, qk_pos_emb_head_dim = 0, v_head_dim = 0;
  std::optional<std::int64_t> sliding_window = {};  // the most keys that a query sees, its own too
  std::vector<std::int64_t> window_layers = {};     // derived: all layers, with a sliding_window
  double norm_epsilon = 1e-5;
  double rotary_base = 10000.0;
  RopeScalingConfig rope_scaling = {};
  double init_method_std = 0.02;
  double hidden_dropout = 0.0;
  double attention_dropout = 0.0;
  std::optional<std::int64_t> pad_token_id =
      {};  // the look-up adds no gradient to this token's row of the embedding
  // Layers behind the others that predict further tokens, in training alone, and the factor of
  // their mean loss.
  std::int64_t mtp_num_layers = 0;
  double mtp_loss_scaling_factor = 0.1;
  MoeConfig moe = {};
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
  std::int64_t context_parallel_size = 1;
  std::string cp_comm_type = "p2p";
  // Of "a2a+p2p": neighbours that exchange heads, and ranks of a ring.
  std::vector<std::int64_t> hierarchical_context_parallel_sizes = {};
  static constexpr auto both_exchanges = "a2a+p2p";
  // Ranks with different experts, and ranks that share each expert (derived: the tensor size). Both
  // divide the ranks of a pipeline stage otherwise than data and tensor parallelism do.
  std::int64_t expert_model_parallel_size = 1;
  std::int64_t expert_tensor_parallel_size = 0;  // 0: the model has no experts
  std::string rank_order = "tp-cp-dp-pp";        // fastest-varying axis first
  // Axes of a program that links the library (LoadOptions::more_axes). No key sets them.
  std::vector<MeshAxis> more_axes = {};

  static ParallelConfig one_rank() { return {.data_parallel_size = 1}; }
  // All axes: data, tensor, pipeline, context if it has several ranks, then more_axes, and with
  // experts their folded axes.
  std::vector<MeshAxis> axes() const;
  // The number of ranks in each group of this kind.
  std::int64_t ranks(Group group) const { return group_size(axes(), group); }
  bool operator==(const ParallelConfig&) const = default;
};

struct PipelineConfig {
  std::string schedule = {};  // derived: the usual schedule for one chunk a rank, or for several
  std::string schedule_file = {};                       // "": none
  std::int64_t microbatch_group_size_per_vp_stage = 0;  // 0: the schedule's own rule
  // Layers of each of the p·v stages, in stage order. Loading turns "even" and "auto" into numbers.
  std::vector<std::int64_t> layer_split = {};
  bool operator==(const PipelineConfig&) const = default;
};

// global_batch_size = micro_batch_size · gradient_accumulation_steps · the number of ranks that get
// different samples (data_parallel_size).
struct BatchConfig {
  std::int64_t global_batch_size = 0;
  std::int64_t micro_batch_size = 0;
  std::int64_t gradient_accumulation_steps = 0;
  // Smaller batches at first: {first size, increment, samples until global_batch_size is reached}.
  // {}: all batches have the same size.
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

// Parameters with their own learning rate or weight decay.
struct ParamGroup {
  std::string params = {};  // a pattern of parameter names
  double lr_mult = 1.0;
  std::optional<double> weight_decay =
      {};  // of all matching parameters; none: as without the group
  bool operator==(const ParamGroup&) const = default;
};

struct OptimizerConfig {
  std::string type = "AdamW";
  OptimizerParams params = {};
  std::vector<ParamGroup> param_groups = {};  // the first group that matches a name applies
  bool operator==(const OptimizerConfig&) const = default;
};

struct LrSchedulerConfig {
  // constant linear cosine cosine_with_restarts wsd polynomial exponential piecewise
  std::string type = "constant";
  std::int64_t warmup_iters = 0;
  double warmup_ratio = 0.0;     // kept only while training.train_iters is 0; see set_train_iters
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
  std::string path = {};  // as docs/data.md has it: a file, a folder, a pattern, a pair's prefix
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
  std::string errors = "strict";  // handling of text that isn't UTF-8: "strict", "replace"
  std::string eos_token = {};     // follows each document; "": the tokenizer's own
  bool operator==(const TokenizerConfig&) const = default;
};

struct DataConfig {
  std::vector<DataSource> train = {};
  std::vector<ValidationSet> validation = {};
  std::string split = {};  // parts for training, validation, test: "949,50,1"; "": all for training
  TokenizerConfig tokenizer = {};
  std::string json_key = "text";              // key of a document's text in .jsonl and .parquet
  bool append_eod = true;                     // end of text after each document
  std::string cache_path = ".trident-cache";  // folder for the tokens of texts
  std::int64_t sequence_length = 0;           // derived: model.max_position_embeddings
  bool shuffle = true;
  std::int64_t seed = 1234;
  // Documents within a sample: attention and positions begin anew, the last label doesn't count.
  bool reset_attention_mask = false, reset_position_ids = false, eod_mask_loss = false;
  std::string packing = "concatenate";  // "concatenate", "best_fit"
  std::int64_t packing_window = 8192;   // documents

  bool separates_documents() const {
    return reset_attention_mask || reset_position_ids || eod_mask_loss;
  }
  bool packs_documents() const { return packing == "best_fit"; }
  // Whether labels of a batch may not count.
  bool masks_labels() const { return eod_mask_loss || packs_documents(); }
  // `split` as three fractions that sum to 1: training, validation, test ({1, 0, 0} for "").
  std::array<double, 3> split_fractions() const;
  bool operator==(const DataConfig&) const = default;
};

struct TrainingConfig {
  std::int64_t train_iters = 0;   // 0: the trainer computes it from train_epochs
  std::int64_t train_epochs = 0;  // 0: train_iters is given; exactly one of the two is set
  std::int64_t seed = 1234;
  std::int64_t eval_interval = 100;  // 0: only after the last iteration
  std::int64_t eval_iters = 10;      // global batches of each evaluation
  bool deterministic = true;
  double label_smoothing = 0.0;
  double ema_decay = 0.0;               // decay of the weights' moving average; 0: none is kept
  std::string on_non_finite = "stop";   // "stop", "skip"
  std::int64_t max_skipped_steps = 10;  // in a row
  bool operator==(const TrainingConfig&) const = default;
};

// Checkpoints in a node's own memory or on its own disk.
struct LocalCheckpointConfig {
  std::string dir = {};
  std::int64_t interval = 0;
  std::int64_t replicas = 1;  // copies on ranks of other nodes
  double mtbf_hours = 0;  // of failures that destroy all copies; 0: CheckpointConfig::mtbf_hours
  bool operator==(const LocalCheckpointConfig&) const = default;
};

struct CheckpointConfig {
  // A Hugging Face directory, a checkpoint, the iteration of a checkpoint in `save`, or "auto". "":
  // start from initial weights if there is no checkpoint in `save`.
  std::string load = {};
  // Parts of the checkpoint in `load` that are not loaded: "optimizer", "iteration", "data".
  std::vector<std::string> exclude_from_loading = {};
  std::map<std::string, std::string> key_mapping = {};  // tensor names in `load`: the model's names
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
  double mtbf_hours = 0;            // mean time between failures of the job; 0: not stated
  LocalCheckpointConfig local = {};
  bool operator==(const CheckpointConfig&) const = default;
};

// An override that derives the data-parallel size from LoadOptions::ranks.
inline constexpr const char* size_follows_ranks = "parallel.data_parallel_size=\"auto\"";
// The keys that a layout sets in addition to "parallel", such as "zero_optimization.stage". Where
// "parallel" is "auto", a key of this list that the config gives keeps its value.
const std::vector<std::string>& layout_keys();

// Whether `load`, a value of checkpoint.load, is the number of an iteration.
bool is_iteration(const std::string& load);

struct RuntimeConfig {
  std::string device = "auto";        // after loading never "auto"
  std::string transport = "auto";     // after loading never "auto"
  std::int64_t ranks_per_node = 0;    // 0: nodes are hosts, as the transport reports them
  std::int64_t threads_per_rank = 0;  // derived: max(1, cores / ranks on this machine)
  double timeout_seconds = 600.0;
  std::string machine = {};  // a machine file for which parallel "auto" is chosen; "": none
  std::string collective_algorithm = "auto";  // after loading "auto" only if not deterministic
  std::string bf16_products = "auto";         // "auto", "native", "widened"
  bool operator==(const RuntimeConfig&) const = default;
};

struct LoggingConfig {
  std::string dir = {};  // derived: runs/<name of the config file without its extension>
  bool overwrite = false;
  std::int64_t log_interval = 0;  // iterations; 0: four lines a minute
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
  // The registry in which its names are looked up: LoadOptions::constraints.
  std::shared_ptr<const ConfigConstraints> constraints = {};

  // Total number of ranks: the product of the axes.
  std::int64_t world_size() const;
  // Micro-batches that one pipeline runs per step: gradient_accumulation_steps.
  std::int64_t num_microbatches() const;
  // Total number of stages: pipeline ranks · chunks per rank (p·v).
  std::int64_t stages() const;
  // vocab_size rounded up to a multiple of make_vocab_size_divisible_by · tensor size
  // (Megatron-LM's rule), so that every tensor rank holds an equal slice.
  std::int64_t padded_vocab_size() const;
  // Size of one attention head: hidden_size / num_attention_heads.
  std::int64_t head_dim() const;

  bool operator==(const Config&) const = default;
};

// Facts about the program and the machine that the file can't contain.
struct LoadOptions {
  // The registry of valid names: built_in_constraints() (engine/setup/registry.h), or the same with
  // the program's own rows. Required.
  std::shared_ptr<const ConfigConstraints> constraints = {};
  // Axes in addition to the config's own, with their sizes.
  std::vector<MeshAxis> more_axes = {};
  // The number of ranks that run (--ranks, or the size of the MPI world). It resolves
  // data_parallel_size "auto".
  std::optional<std::int64_t> ranks = {};
  // Takes the least possible data_parallel_size, whatever the config says.
  bool least_data_parallel = false;
  // The number of ranks on this machine; by default all ranks.
  std::optional<std::int64_t> local_ranks = {};
  // The number of cores that the ranks of this machine share.
  std::int64_t cores = 1;
  // The value of batch.micro_batch_size "auto", which planner/plan/fit.h finds from the memory of
  // the machine. 0: all sequences of a data-parallel rank.
  std::optional<std::int64_t> micro_batch_size = {};
  // The value of runtime.transport "auto": "local", or "mpi" under mpirun.
  std::string transport = "local";
  // The value of runtime.device "auto": "cpu", or "cuda" where there is a GPU.
  std::string device = "cpu";
  // Returns the "model" section of the weights in the folder `load` (checkpoint.load), as JSON
  // text. The config takes from it the model keys that it leaves out itself. Throws RequestError
  // where the folder has no weights. nullptr: no folder is read.
  std::function<std::string(const std::string& load)> saved_model = {};
  // The number of GPUs of this machine. Transport "auto" is nccl where each rank has a GPU.
  std::int64_t gpus = 0;
};

struct LoadedConfig {
  Config config = {};
  // The requested config as JSON text: the file with its overrides, without defaults.
  std::string written = {};
  std::string filled_in = {};  // config_to_json(config, written)
  // "parallel" is "auto". `config` then describes one rank that runs one sample at a time, without
  // the layout_keys() that `written` may have. Its number of threads is that of each of
  // LoadOptions::ranks. run/startup/auto_layout.h, which knows the machine, chooses the layout.
  bool parallel_is_auto = false;
  bool micro_batch_is_auto = false;
  bool accumulation_is_given = false;  // then only one micro-batch size is possible for "auto"
  bool device_is_auto = false;
  // The members below are set by the caller that knows the machine, not by load_config.
  std::string why_layout = {};  // how parallel "auto" was chosen
  // Memory of a rank in bytes if no micro-batch size fits for "auto"; else 0.
  std::int64_t fits_none = 0;
  std::string why_cpu = {};  // why device "auto" took the CPU
};

// Reads, overrides, fills in and checks a config. `overrides` are "a.b=value" strings (an array
// element by its number: "data.train.0.path=x"); a value that isn't JSON is a string. Throws
// RequestError with every problem, each as "config: /json/path: the value, the rule; the nearest
// valid choice".
LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                         const LoadOptions& options);

// Reads a config's file, which may be a pipe, merged with the files that it extends. Their paths
// start from the folder of the file that names them. Key by key later files win over earlier ones,
// and the file itself over all. Throws RequestError where a file can't be read.
std::string read_config(const std::string& path);
// Whether "parallel" is "auto" in the config `text` with these overrides; false where they can't be
// parsed.
bool layout_is_auto(const std::string& text, const std::vector<std::string>& overrides);

// As load_config, from JSON text. `name` stands for the file in errors and in logging.dir's
// default.
LoadedConfig parse_config(std::string_view text, const std::vector<std::string>& overrides,
                          const LoadOptions& options, const std::string& name = "config.json");

// Sets training.train_iters and the values that follow from it: scheduler.warmup_iters (from
// warmup_ratio) and, where they aren't given, scheduler.decay_iters and wsd_decay_iters. The
// trainer calls this once it has turned train_epochs into iterations. Throws RequestError where the
// learning-rate schedule doesn't fit.
void set_train_iters(Config& config, std::int64_t train_iters);

// `config` as indented JSON, every key present. With `written` (LoadedConfig::written), a section
// "derived" lists the values that were derived, with the values that were written in their place.
// The result loads back as the same Config on any machine. After an override or an edit by hand,
// loading derives the values that follow from it anew.
std::string config_to_json(const Config& config);
std::string config_to_json(const Config& config, const std::string& written);
// Whether `written` has the key at this JSON pointer, and not as null. True where `written` is "",
// which means that the written config is unknown.
bool is_written(const std::string& written, std::string_view path);

// The JSON Schema (draft 2020-12) of a config file, indented.
std::string config_schema(const ConfigConstraints&);

// The JSON text `config`, in the order of its keys, with a comment above each key that describes
// it.
std::string annotated_config(const std::string& config, const ConfigConstraints&);

// The reference page, docs/config.md.
std::string config_reference_markdown(const ConfigConstraints&);

}  // namespace trident

// Fills in defaults that follow from other keys. A value that follows from an unsound key is
// unsound too, so that one mistake isn't reported twice.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/printable.h"
#include "settings/fields.h"
#include "settings/paths.h"
#include "settings/pipeline_sizes.h"
#include "settings/rope_types.h"

namespace trident {
namespace config_detail {
namespace {

class Resolver {
 public:
  Resolver(Config& config, const Given& given, const LoadOptions& options, Problems& problems)
      : config_(config), given_(given), options_(options), problems_(problems) {}

  void model();
  void experts();
  void parallel();
  void schedule();
  void layer_split();
  void batch();
  void run(const std::string& name);

 private:
  bool automatic_micro_batch();
  // Sets `part` to global_batch_size / `unit`; `factors` is the text of `unit` as a product.
  void divide_batch(const std::string& factors, std::int64_t unit, std::int64_t& part);
  std::string text_of_samplers() const;
  void transport();

  bool given(std::string_view path) const { return given_.contains(path); }

  // Calls `set` for a key that isn't given, if all its `sources` are sound.
  template <class Set>
  void derive(std::string_view path, std::initializer_list<std::string_view> sources, Set set) {
    if (given(path) || !problems_.sound(path)) return;
    if (problems_.sound(sources)) {
      set();
    } else {
      problems_.spoil(path);
    }
  }

  Config& config_;
  const Given& given_;
  const LoadOptions& options_;
  Problems& problems_;
};

void Resolver::model() {
  ModelConfig& model = config_.model;
  std::int64_t& sequence = config_.data.sequence_length;
  const ModelConstraints* const constraints =
      find_row(options_.constraints->models, model.architecture);
  derive("/model/num_query_groups", {"/model/num_attention_heads"},
         [&] { model.num_query_groups = model.num_attention_heads; });
  // Where the heads don't divide the width, validate_model() reports it.
  const bool latent = constraints != nullptr && constraints->latent_attention;
  derive("/model/qk_head_dim", {kModel}, [&] { model.qk_head_dim = latent ? 128 : 0; });
  derive("/model/qk_pos_emb_head_dim", {kModel},
         [&] { model.qk_pos_emb_head_dim = latent ? 64 : 0; });
  derive("/model/v_head_dim", {kModel}, [&] { model.v_head_dim = latent ? 128 : 0; });
  derive("/model/head_dim",
         {kModel, "/model/hidden_size", "/model/num_attention_heads", "/model/qk_pos_emb_head_dim"},
         [&] {
           if (latent) {
             model.head_dim = model.qk_pos_emb_head_dim;
             return;
           }
           if (model.hidden_size % model.num_attention_heads != 0) return;
           model.head_dim = model.hidden_size / model.num_attention_heads;
         });
  derive("/model/ffn_hidden_size", {"/model/architecture", "/model/hidden_size"}, [&] {
    model.ffn_hidden_size = 4 * model.hidden_size;
    if (!constraints->gated_mlp) return;
    const std::int64_t usual = (8 * model.hidden_size / 3 + 63) / 64 * 64;
    problems_.add("/model/ffn_hidden_size",
                  fmt::format("must be given for {}; about 8/3 of hidden_size ({}) is usual: {}",
                              constraints->name, model.hidden_size, usual));
  });
  derive("/model/tie_word_embeddings", {"/model/architecture"},
         [&] { model.tie_word_embeddings = constraints->tied; });
  derive("/model/qk_norm", {"/model/architecture"}, [&] { model.qk_norm = constraints->qk_norm; });
  derive("/model/window_layers", {"/model/sliding_window", "/model/num_layers"}, [&] {
    if (!model.sliding_window) return;
    model.window_layers.resize(static_cast<std::size_t>(model.num_layers));
    std::iota(model.window_layers.begin(), model.window_layers.end(), 0);
  });
  if (!given("/data/sequence_length") && !given("/model/max_position_embeddings")) {
    problems_.add("/data/sequence_length",
                  "is missing; give it, or model.max_position_embeddings, which it then equals");
    problems_.spoil("/model/max_position_embeddings");
  }
  derive("/data/sequence_length", {"/model/max_position_embeddings"},
         [&] { sequence = model.max_position_embeddings; });
  derive("/model/max_position_embeddings", {"/data/sequence_length"},
         [&] { model.max_position_embeddings = sequence; });
  constexpr auto kOriginal = "/model/rope_scaling/original_max_position_embeddings";
  derive(kOriginal, {"/model/rope_scaling/rope_type", "/model/max_position_embeddings"}, [&] {
    RopeScalingConfig& scaling = model.rope_scaling;
    const RopeType* const type = find_rope_type(scaling.rope_type);
    if (type == nullptr || !type->reads(leaf(kOriginal))) return;
    scaling.original_max_position_embeddings = model.max_position_embeddings;
  });
  derive("/model/vocab_size", {"/data/tokenizer/type"}, [&] {
    model.vocab_size = 256;
    if (config_.data.tokenizer.type == "byte") return;
    problems_.add("/model/vocab_size",
                  fmt::format("must be given for tokenizer type \"{}\": the number of its ids",
                              config_.data.tokenizer.type));
  });
}

void Resolver::experts() {
  ModelConfig& model = config_.model;
  MoeConfig& moe = model.moe;
  const ModelConstraints* const constraints =
      find_row(options_.constraints->models, model.architecture);
  derive("/model/moe/router_score_function", {kModel},
         [&] { moe.router_score_function = constraints->experts.score_function; });
  derive("/model/moe/shared_expert_gate", {kModel},
         [&] { moe.shared_expert_gate = constraints->experts.shared_gate; });
  derive("/model/moe/norm_topk_prob", {kModel},
         [&] { moe.norm_topk_prob = constraints->experts.norm_topk_prob; });
  derive("/model/moe/router_dtype", {kModel},
         [&] { moe.router_dtype = constraints->experts.fp32_router ? "fp32" : "model"; });
  derive("/model/moe/router_enable_expert_bias", {kModel},
         [&] { moe.router_enable_expert_bias = constraints->experts.bias; });
  derive(kExpertFfn, {kExperts, kFfn}, [&] {
    if (moe.has_experts()) moe.ffn_hidden_size = model.ffn_hidden_size;
  });
  if (!problems_.sound({kExperts, kLayerFreq, kLayers})) {
    problems_.spoil(kLayerFreq);
  } else if (moe.has_experts()) {
    // A number n, read as {-n}, by default 1: every n-th layer has experts.
    if (!given(kLayerFreq)) moe.layer_freq = {-1};
    if (moe.layer_freq.size() == 1 && moe.layer_freq.front() < 0) {
      const std::int64_t every = -moe.layer_freq.front();
      moe.layer_freq.assign(static_cast<std::size_t>(model.num_layers), 0);
      for (std::int64_t i = 0; i < model.num_layers; i += every) {
        moe.layer_freq[static_cast<std::size_t>(i)] = 1;
      }
    }
  }
  derive(kExpertTensor, {kExperts, kTensor}, [&] {
    if (!moe.has_experts()) return;
    config_.parallel.expert_tensor_parallel_size = config_.parallel.tensor_model_parallel_size;
  });
}

void Resolver::parallel() {
  constexpr auto kPath = "/parallel/data_parallel_size";
  std::int64_t& data = config_.parallel.data_parallel_size;
  std::int64_t replica = 1;
  std::string sizes;
  for (const MeshAxis& axis : config_.parallel.axes()) {
    if ("/parallel/" + axis.key == kPath || axis.folded) continue;
    replica *= axis.size;
    sizes += fmt::format("{}{} ({})", sizes.empty() ? "" : " × ", axis.title, axis.size);
  }
  if (!axes_sound(config_.parallel, problems_)) {
    problems_.spoil(kPath);
    return;
  }
  if (options_.least_data_parallel) {
    // Experts fold over the data and the tensor ranks.
    const ParallelConfig& parallel = config_.parallel;
    const std::int64_t tensor = parallel.tensor_model_parallel_size;
    const std::int64_t experts = parallel.expert_model_parallel_size *
                                 std::max<std::int64_t>(1, parallel.expert_tensor_parallel_size);
    data = config_.model.moe.has_experts() ? experts / std::gcd(experts, tensor) : 1;
  } else if (data == 0 && options_.ranks) {
    data = *options_.ranks / replica;
    if (data < 1 || *options_.ranks % replica != 0) {
      problems_.add(kPath, fmt::format("{} ranks are not a multiple of {} = {}; run {} ranks",
                                       *options_.ranks, sizes, replica,
                                       multiples_near(replica, *options_.ranks)));
    }
  } else if (data == 0) {
    data = 1;
    if (given(kPath)) {
      problems_.add(kPath, "\"auto\" needs the number of ranks; give --ranks N, or a number here");
    }
  } else if (options_.ranks && data * replica != *options_.ranks) {
    problems_.add(kPath, fmt::format("data ({}) × {} = {}, but the number of ranks is {}; {}", data,
                                     sizes, data * replica, *options_.ranks,
                                     *options_.ranks % replica == 0
                                         ? fmt::format("use {} here", *options_.ranks / replica)
                                         : fmt::format("run {} ranks", data * replica)));
  }
}

void Resolver::schedule() {
  const std::vector<ScheduleConstraints>& kinds = options_.constraints->schedules;
  std::int64_t& chunks = config_.parallel.virtual_pipeline_model_parallel_size;
  if (given(kSchedule) && !given("/pipeline/schedule_file")) {
    derive(kChunks, {kSchedule}, [&] {
      const ChunkRule rule = schedule_constraints(config_).chunks;
      chunks = rule == ChunkRule::two || rule == ChunkRule::several ? 2 : 1;
    });
  }
  derive(kSchedule, {kChunks},
         [&] { config_.pipeline.schedule = default_schedule(kinds, chunks > 1); });
}

void Resolver::layer_split() {
  auto& split = config_.pipeline.layer_split;
  const bool balanced = split == std::vector<std::int64_t>{0};
  if (!problems_.sound(kLayerSplit) || (!split.empty() && !balanced)) return;
  if (!problems_.sound({kChunks, kPipeline, kLayers})) {
    problems_.spoil(kLayerSplit);
    return;
  }
  const std::int64_t chunks = config_.parallel.virtual_pipeline_model_parallel_size;
  const std::int64_t layers = config_.model.num_layers;
  const std::int64_t stages = config_.stages();
  if (stages > layers) {
    const bool known = problems_.sound(kSchedule) && config_.pipeline.schedule_file.empty();
    problems_.add(
        kPipeline,
        fmt::format("pipeline ({}) × chunks ({}) = {} stages, more than num_layers ({}); {}",
                    config_.parallel.pipeline_model_parallel_size, chunks, stages, layers,
                    pipeline_choices(config_, known ? &schedule_constraints(config_) : nullptr,
                                     kPipeline)));
    problems_.spoil(kLayerSplit);
    return;
  }
  if (balanced && problems_.sound({kSchedule, kModel, kHidden, kHeads, kGroups, kFfn})) {
    split = options_.constraints->layer_split(config_);
    return;
  }
  if (balanced) {
    problems_.spoil(kLayerSplit);
    return;
  }
  split.assign(static_cast<std::size_t>(stages), layers / stages);
  for (std::int64_t i = 0; i < layers % stages; ++i) ++split[static_cast<std::size_t>(i)];
}

namespace {

std::string factor(const std::string& key, std::int64_t value) {
  return fmt::format("{} ({})", key, value);
}

}  // namespace

// The axes along which ranks get different samples, as factors.
std::string Resolver::text_of_samplers() const {
  std::string text;
  for (const MeshAxis& axis : config_.parallel.axes()) {
    if (!axis.in(Group::batch)) continue;
    text +=
        (text.empty() ? "" : " × ") + factor(axis.key.empty() ? axis.name : axis.key, axis.size);
  }
  return text;
}

// Finds the micro-batch size for "auto"; returns false after adding a problem.
bool Resolver::automatic_micro_batch() {
  auto& [global, micro, accumulation, ramp] = config_.batch;
  if (global == 0) {
    problems_.add(
        kMicro, "\"auto\" divides global_batch_size, which is missing; give it, or a number here");
    return false;
  }
  if (accumulation != 0) return true;
  if (!options_.micro_batch_size) {
    problems_.add(kMicro,
                  "\"auto\" needs the memory of a run, which only train, plan and bench "
                  "know; give a number here");
    return false;
  }
  micro = *options_.micro_batch_size;
  if (micro == 0) {
    micro = std::max<std::int64_t>(1, global / config_.parallel.ranks(Group::batch));
  }
  return true;
}

void Resolver::divide_batch(const std::string& factors, std::int64_t unit, std::int64_t& part) {
  const std::int64_t global = config_.batch.global_batch_size;
  if (global % unit == 0) {
    part = global / unit;
    return;
  }
  problems_.add(kGlobal, fmt::format("{} is not a multiple of {} = {}; use {}", global, factors,
                                     unit, multiples_near(unit, global)));
  problems_.spoil(kMicro);
}

// Derives batch sizes by DeepSpeed's rule: accumulation is 1 where only one of the other two is
// given.
void Resolver::batch() {
  auto& [global, micro, accumulation, ramp] = config_.batch;
  if (!problems_.sound({kGlobal, kMicro, kAccumulation, kData})) {
    problems_.spoil(kMicro);
    return;
  }
  if (given(kMicro) && micro == 0 && !automatic_micro_batch()) return;
  if (global == 0 && micro == 0) {
    problems_.add(kGlobal, "is missing; give it, or micro_batch_size");
    problems_.spoil(kMicro);
    return;
  }
  const std::int64_t samplers = config_.parallel.ranks(Group::batch);
  const std::string sampler_text = text_of_samplers();
  const std::string micro_text = factor("micro_batch_size", micro);
  if (accumulation == 0 && global != 0 && micro != 0) {
    divide_batch(micro_text + " × " + sampler_text, micro * samplers, accumulation);
    return;
  }
  if (accumulation == 0) accumulation = 1;
  const std::string accumulation_text = factor("gradient_accumulation_steps", accumulation);
  if (micro == 0) {
    divide_batch(accumulation_text + " × " + sampler_text, accumulation * samplers, micro);
    return;
  }
  const std::int64_t product = micro * accumulation * samplers;
  if (global == 0) global = product;
  if (global != product) {
    problems_.add(kGlobal, fmt::format("{} is not {} × {} × {} = {}; use {}, or leave one of the "
                                       "three out",
                                       global, micro_text, accumulation_text, sampler_text, product,
                                       product));
  }
}

// Chooses the transport for "auto".
void Resolver::transport() {
  RuntimeConfig& runtime = config_.runtime;
  runtime.transport = options_.transport;
  const std::int64_t world =
      problems_.sound(kData) ? config_.world_size() : options_.ranks.value_or(1);
  const bool own_gpus =
      runtime.device == "cuda" && options_.local_ranks.value_or(world) <= options_.gpus;
  const auto of_gpus =
      names_where(options_.constraints->transports, &TransportConstraints::gpu_for_each_rank);
  if (!own_gpus || of_gpus.empty()) return;
  if (transport_constraints(config_).processes || world > 1) runtime.transport = of_gpus.front();
}

void Resolver::run(const std::string& name) {
  TrainingConfig& training = config_.training;
  RuntimeConfig& runtime = config_.runtime;
  derive("/zero_optimization/reduce_each_micro_batch", {"/zero_optimization/stage"}, [&] {
    config_.zero_optimization.reduce_each_micro_batch = config_.zero_optimization.stage >= 2;
  });
  derive("/optimizer/params/weight_decay", {"/optimizer/type"}, [&] {
    config_.optimizer.params.weight_decay = optimizer_constraints(config_).weight_decay;
  });
  if (!given("/training/train_iters")) {
    derive("/training/train_epochs", {}, [&] { training.train_epochs = 1; });
  }
  resolve_iterations(config_);
  if (runtime.device == "auto") runtime.device = options_.device;
  if (!given("/training/deterministic")) training.deterministic = runtime.device == "cpu";
  if (runtime.transport == "auto") transport();
  if (runtime.collective_algorithm == "auto" && training.deterministic) {
    const auto ordered =
        names_where(options_.constraints->algorithms, &AlgorithmConstraints::in_rank_order);
    if (!ordered.empty()) runtime.collective_algorithm = ordered.front();
  }
  if (problems_.sound("/parallel/data_parallel_size")) {
    const std::int64_t local = options_.local_ranks.value_or(config_.world_size());
    if (runtime.threads_per_rank == 0) {
      runtime.threads_per_rank = std::max<std::int64_t>(1, options_.cores / local);
    }
  }
  if (config_.logging.dir.empty()) {
    const std::string stem = std::filesystem::path(name).stem().string();
    config_.logging.dir = "runs/" + stem;
    if (printable(stem, stem.size()) != stem) {
      problems_.add("/logging/dir", "the config file's name, \"" + printable(stem) +
                                        "\", can't name a directory of the run; give one");
    }
  }
}

}  // namespace

void resolve_iterations(Config& config) {
  LrSchedulerConfig& scheduler = config.scheduler;
  const std::int64_t iterations = config.training.train_iters;
  if (iterations == 0) return;
  if (scheduler.warmup_iters == 0) {
    scheduler.warmup_iters = static_cast<std::int64_t>(
        std::llround(scheduler.warmup_ratio * static_cast<double>(iterations)));
    scheduler.warmup_ratio = 0.0;
  }
  if (scheduler.decay_iters == 0) scheduler.decay_iters = iterations;
  if (scheduler.type == "wsd" && scheduler.wsd_decay_iters == 0) {
    const std::int64_t left = scheduler.decay_iters - scheduler.warmup_iters;
    scheduler.wsd_decay_iters =
        std::max<std::int64_t>(1, std::min(scheduler.decay_iters / 10, left));
  }
}

void resolve(Config& config, const Given& given, const LoadOptions& options,
             const std::string& name, Problems& problems) {
  Resolver resolver(config, given, options, problems);
  resolver.model();
  resolver.experts();
  resolver.parallel();
  resolver.schedule();
  switch_off_ineffective_keys(config, problems);
  resolver.layer_split();
  resolver.batch();
  resolver.run(name);
}

}  // namespace config_detail

void set_train_iters(Config& config, std::int64_t train_iters) {
  config.training.train_iters = train_iters;
  config_detail::resolve_iterations(config);
  config_detail::Problems problems;
  config_detail::validate_iterations(config, problems);
  if (!problems.lines().empty()) throw RequestError(problems.lines());
}

}  // namespace trident

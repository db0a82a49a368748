// The rules between fields. Each check runs only where the fields it compares are sound, so that
// every line is a problem of its own.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>

#include "config/fields.h"
#include "core/error.h"

namespace trident {
namespace config_detail {
namespace {

constexpr auto kTensor = "/parallel/tensor_model_parallel_size";
constexpr auto kPipeline = "/parallel/pipeline_model_parallel_size";
constexpr auto kData = "/parallel/data_parallel_size";
constexpr auto kChunks = "/parallel/virtual_pipeline_model_parallel_size";
constexpr auto kHeads = "/model/num_attention_heads";
constexpr auto kGroups = "/model/num_query_groups";
constexpr auto kHidden = "/model/hidden_size";
constexpr auto kFfn = "/model/ffn_hidden_size";

void validate_model(const Config& config, Problems& problems) {
  const ModelConfig& model = config.model;
  if (problems.sound({kHidden, kHeads})) {
    if (model.hidden_size % model.num_attention_heads != 0) {
      problems.add(kHidden,
                   fmt::format("{} is not a multiple of num_attention_heads ({}); use {}",
                               model.hidden_size, model.num_attention_heads,
                               multiples_near(model.num_attention_heads, model.hidden_size)));
    } else if (model.architecture == "llama" && config.head_dim() % 2 != 0) {
      problems.add(kHidden,
                   fmt::format("{} / num_attention_heads ({}) = {} is odd, but rotary positions "
                               "turn pairs; use {}",
                               model.hidden_size, model.num_attention_heads, config.head_dim(),
                               multiples_near(2 * model.num_attention_heads, model.hidden_size)));
    }
  }
  if (problems.sound({kGroups, kHeads, "/model/architecture"})) {
    if (model.architecture == "gpt2" && model.num_query_groups != model.num_attention_heads) {
      problems.add(kGroups, fmt::format("{} differs from num_attention_heads ({}), but gpt2 has no "
                                        "grouped queries; leave it out, or use llama",
                                        model.num_query_groups, model.num_attention_heads));
    } else if (model.num_attention_heads % model.num_query_groups != 0) {
      problems.add(kGroups,
                   fmt::format("{} does not divide num_attention_heads ({}); use {}",
                               model.num_query_groups, model.num_attention_heads,
                               divisors_near(model.num_attention_heads, model.num_query_groups)));
    }
  }
  if (model.architecture == "gpt2" && problems.sound("/model/rotary_base") &&
      model.rotary_base != ModelConfig{}.rotary_base) {
    problems.add("/model/rotary_base", "gpt2 has no rotary positions; leave it out, or use llama");
  }
  if (problems.sound({"/data/sequence_length", "/model/max_position_embeddings"}) &&
      config.data.sequence_length > model.max_position_embeddings) {
    problems.add("/data/sequence_length",
                 fmt::format("{} is more than model.max_position_embeddings ({}); use at most {}",
                             config.data.sequence_length, model.max_position_embeddings,
                             model.max_position_embeddings));
  }
}

void validate_tensor_parallel(const Config& config, Problems& problems) {
  const std::int64_t tensor = config.parallel.tensor_model_parallel_size;
  if (problems.sound({kTensor, kHeads, kGroups, kFfn})) {
    const ModelConfig& model = config.model;
    const std::int64_t common = std::gcd(
        std::gcd(model.num_attention_heads, model.num_query_groups), model.ffn_hidden_size);
    const auto check = [&](const char* name, std::int64_t size) {
      if (size % tensor == 0 || !problems.sound(kTensor)) return;
      problems.add(kTensor, fmt::format("{} does not divide {} ({}); use {}", tensor, name, size,
                                        divisors_near(common, tensor)));
    };
    check("num_attention_heads", model.num_attention_heads);
    check("num_query_groups", model.num_query_groups);
    check("ffn_hidden_size", model.ffn_hidden_size);
  }
  constexpr auto kSequence = "/parallel/sequence_parallel";
  if (problems.sound({kSequence, "/parallel/tp_comm_overlap"}) && config.parallel.tp_comm_overlap &&
      !config.parallel.sequence_parallel) {
    problems.add("/parallel/tp_comm_overlap",
                 "true needs sequence_parallel, whose gathers and reductions it cuts up");
  }
  if (!config.parallel.sequence_parallel || !problems.sound({kTensor, kSequence})) return;
  if (tensor == 1) {
    problems.add(kSequence,
                 "true does nothing with tensor_model_parallel_size 1; leave it out, or use 2");
  } else if (problems.sound({"/batch/micro_batch_size", "/data/sequence_length"})) {
    const std::int64_t rows = config.batch.micro_batch_size * config.data.sequence_length;
    if (rows % tensor != 0) {
      problems.add(kSequence,
                   fmt::format("micro_batch_size ({}) × sequence_length ({}) = {} tokens can't be "
                               "shared by tensor_model_parallel_size ({}); use a sequence_length "
                               "of {}",
                               config.batch.micro_batch_size, config.data.sequence_length, rows,
                               tensor, multiples_near(tensor, config.data.sequence_length)));
    }
  }
}

void validate_pipeline(const Config& config, Problems& problems) {
  const std::int64_t pipeline = config.parallel.pipeline_model_parallel_size;
  const std::int64_t chunks = config.parallel.virtual_pipeline_model_parallel_size;
  const std::string& schedule = config.pipeline.schedule;
  const bool own = !config.pipeline.schedule_file.empty();  // checked when it is read
  if (problems.sound({kPipeline, kChunks, "/pipeline/schedule", "/pipeline/schedule_file"}) &&
      !own) {
    const ChunkRule rule = chunk_rule(schedule);
    const bool interleaved =
        schedule == "interleaved_1f1b" || schedule == "interleaved_zero_bubble";
    if (rule == ChunkRule::one && chunks > 1) {
      problems.add(kChunks,
                   fmt::format("{} chunks don't fit schedule \"{}\", which has one a rank; "
                               "use 1, or schedule \"interleaved_1f1b\"",
                               chunks, schedule));
    } else if (rule == ChunkRule::two && chunks != 2) {
      problems.add(kChunks, fmt::format("{} chunk{} fit schedule \"{}\", which has two a rank; use "
                                        "2, or another schedule",
                                        chunks, chunks == 1 ? " doesn't" : "s don't", schedule));
    } else if (interleaved && chunks < 2) {
      problems.add(kChunks,
                   fmt::format("1 chunk is too few for schedule \"{}\"; use 2, or "
                               "schedule \"{}\"",
                               schedule, schedule == "interleaved_1f1b" ? "1f1b" : "zb_h1"));
    } else if (interleaved && pipeline < 2) {
      problems.add(kPipeline, fmt::format("{} rank can't interleave {} chunks; use 2 ranks, or "
                                          "virtual_pipeline_model_parallel_size 1",
                                          pipeline, chunks));
    }
    constexpr auto kGroup = "/pipeline/microbatch_group_size_per_vp_stage";
    if (config.pipeline.microbatch_group_size_per_vp_stage != 0 && !interleaved &&
        problems.sound(kGroup)) {
      problems.add(kGroup, fmt::format("does nothing in schedule \"{}\"; leave it out, or use "
                                       "\"interleaved_1f1b\"",
                                       schedule));
    }
  }
  if (own && problems.sound({"/pipeline/schedule", "/pipeline/schedule_file"})) {
    if (schedule.starts_with("pipedream")) {
      problems.add("/pipeline/schedule_file",
                   fmt::format("a schedule of your own is flushed at the end of each iteration, "
                               "schedule \"{}\" is not; leave one of the two out",
                               schedule));
    }
    if (config.pipeline.microbatch_group_size_per_vp_stage != 0) {
      problems.add("/pipeline/microbatch_group_size_per_vp_stage",
                   "does nothing beside schedule_file; leave it out");
    }
  }
  if (schedule == "pipedream" && !own && problems.sound("/pipeline/schedule")) {
    // Each stage updates by itself, after each micro-batch.
    if (config.gradient_clipping > 0 && problems.sound("/gradient_clipping")) {
      problems.add("/gradient_clipping",
                   fmt::format("{} needs the norm over all stages at every update, for which "
                               "schedule \"pipedream\" would have to be flushed; use 0, or "
                               "schedule \"pipedream_2bw\"",
                               config.gradient_clipping));
    }
    if (config.training.on_non_finite == "skip" && problems.sound("/training/on_non_finite")) {
      problems.add("/training/on_non_finite",
                   "\"skip\" can't leave out updates that schedule \"pipedream\" has made; use "
                   "\"stop\"");
    }
    if (config.model.tie_word_embeddings && pipeline > 1 &&
        problems.sound("/model/tie_word_embeddings")) {
      problems.add("/model/tie_word_embeddings",
                   "the first and the last stage would have to update together, but in schedule "
                   "\"pipedream\" each does by itself; use false, or schedule \"pipedream_2bw\"");
    }
    if (!config.logging.dump_gradients_at.empty() && problems.sound("/logging/dump_gradients_at")) {
      problems.add("/logging/dump_gradients_at",
                   "schedule \"pipedream\" has no gradient of a whole iteration; leave it out");
    }
  }
  constexpr auto kSplit = "/pipeline/layer_split";
  if (!problems.sound({kSplit, kPipeline, kChunks, "/model/num_layers"})) return;
  const auto& split = config.pipeline.layer_split;
  const std::int64_t sum = std::accumulate(split.begin(), split.end(), std::int64_t{0});
  const auto count = static_cast<std::int64_t>(split.size());
  if (count != config.stages()) {
    problems.add(kSplit, fmt::format("has {} numbers, but pipeline ({}) × chunks ({}) = {} stages; "
                                     "use {} numbers, or \"even\"",
                                     count, pipeline, chunks, config.stages(), config.stages()));
  } else if (sum != config.model.num_layers) {
    problems.add(kSplit, fmt::format("sums to {}, not to num_layers ({}); change it, or use "
                                     "\"even\"",
                                     sum, config.model.num_layers));
  }
}

void validate_layout(const Config& config, Problems& problems) {
  constexpr auto kOrder = "/parallel/rank_order";
  if (problems.sound(kOrder) && !axis_order(config.parallel.axes(), config.parallel.rank_order)) {
    problems.add(kOrder, fmt::format("\"{}\" does not name each of tp, dp and pp once, joined by "
                                     "dashes; use \"{}\"",
                                     config.parallel.rank_order, ParallelConfig{}.rank_order));
  }
  constexpr auto kNode = "/runtime/ranks_per_node";
  if (!problems.sound({kData, kTensor, kPipeline})) return;
  const std::int64_t world = config.world_size();
  const std::int64_t node = config.runtime.ranks_per_node;
  if (problems.sound(kNode) && node > 0 && node < world && world % node != 0) {
    problems.add(kNode, fmt::format("{} does not divide the number of ranks ({}); use {}", node,
                                    world, divisors_near(world, node)));
  }
  constexpr auto kAlgorithm = "/runtime/collective_algorithm";
  const std::string& algorithm = config.runtime.collective_algorithm;
  if (problems.sound({kAlgorithm, "/runtime/device"}) && config.runtime.device == "cuda" &&
      (algorithm == "ring" || algorithm == "tree")) {
    problems.add(kAlgorithm, fmt::format("\"{}\" is for ranks on the CPU, runtime.device is "
                                         "\"cuda\"; use \"auto\"",
                                         algorithm));
    return;
  }
  if (problems.sound({"/runtime/transport", "/runtime/device"})) {
    const bool cuda = config.runtime.device == "cuda";
    if (cuda && config.runtime.transport == "mpi") {
      problems.add("/runtime/transport",
                   "\"mpi\" carries no tensors of a GPU; use \"nccl\", or device \"cpu\"");
    } else if (!cuda && config.runtime.transport == "nccl") {
      problems.add("/runtime/transport",
                   "\"nccl\" carries tensors of GPUs only, runtime.device is \"" +
                       config.runtime.device + "\"; use \"auto\"");
    }
  }
  if (problems.sound({kAlgorithm, "/training/deterministic"}) && world > 2 &&
      config.training.deterministic && (algorithm == "ring" || algorithm == "tree")) {
    problems.add(kAlgorithm,
                 fmt::format("\"{}\" doesn't add in rank order on {} ranks, which "
                             "training.deterministic asks for; use \"direct\", or deterministic "
                             "false",
                             algorithm, world));
  }
}

void validate_optimizer(const Config& config, Problems& problems) {
  const OptimizerParams& params = config.optimizer.params;
  const bool sgd = config.optimizer.type == "SGD";
  if (problems.sound("/optimizer/type")) {
    const auto refuse = [&](const char* path, bool changed, const char* other) {
      if (!changed || !problems.sound(path)) return;
      problems.add(path, fmt::format("does nothing for {}; leave it out, or use {}",
                                     config.optimizer.type, other));
    };
    refuse("/optimizer/params/momentum", !sgd && params.momentum != 0, "SGD");
    const bool adam = config.optimizer.type.starts_with("Adam");
    refuse("/optimizer/params/betas", !adam && params.betas != OptimizerParams{}.betas, "AdamW");
    refuse("/optimizer/params/eps", !adam && params.eps != OptimizerParams{}.eps, "AdamW");
  }
  const std::string& schedule = config.pipeline.schedule;
  if (problems.sound({"/zero_optimization/stage", "/pipeline/schedule"}) &&
      config.zero_optimization.stage == 3 && schedule.starts_with("pipedream")) {
    problems.add("/zero_optimization/stage",
                 fmt::format("3 keeps one version of the weights in shards, but schedule \"{}\" "
                             "stashes whole older ones; use 2, or a schedule that flushes such as "
                             "\"1f1b\"",
                             schedule));
  }
  if (problems.sound(
          {"/activation_checkpointing/granularity", "/activation_checkpointing/num_layers"}) &&
      config.activation_checkpointing.granularity != "full" &&
      config.activation_checkpointing.num_layers != ActivationCheckpointingConfig{}.num_layers) {
    problems.add("/activation_checkpointing/num_layers",
                 fmt::format("does nothing for granularity \"{}\"; leave it out, or use \"full\"",
                             config.activation_checkpointing.granularity));
  }

  const LrSchedulerConfig& scheduler = config.scheduler;
  const LrSchedulerConfig usual;
  if (problems.sound({"/scheduler/min_lr", "/optimizer/params/lr"}) &&
      scheduler.min_lr > params.lr) {
    problems.add("/scheduler/min_lr", fmt::format("{} is more than optimizer.params.lr ({})",
                                                  scheduler.min_lr, params.lr));
  }
  if (problems.sound("/scheduler/type")) {
    const auto refuse = [&](const char* path, bool changed, const char* types) {
      if (!changed || !problems.sound(path)) return;
      problems.add(path, fmt::format("does nothing for type \"{}\"; leave it out, or use {}",
                                     scheduler.type, types));
    };
    const bool piecewise = scheduler.type == "piecewise";
    refuse("/scheduler/min_lr", scheduler.type == "constant" && scheduler.min_lr != 0,
           "\"linear\" or \"cosine\"");
    refuse("/scheduler/power", scheduler.type != "polynomial" && scheduler.power != usual.power,
           "\"polynomial\"");
    refuse("/scheduler/gamma",
           scheduler.type != "exponential" && !piecewise && scheduler.gamma != usual.gamma,
           "\"exponential\" or \"piecewise\"");
    refuse("/scheduler/milestones", !piecewise && !scheduler.milestones.empty(), "\"piecewise\"");
    if (piecewise && problems.sound("/scheduler/milestones") &&
        (scheduler.milestones.empty() ||
         std::adjacent_find(scheduler.milestones.begin(), scheduler.milestones.end(),
                            std::greater_equal<>()) != scheduler.milestones.end())) {
      problems.add("/scheduler/milestones",
                   "type \"piecewise\" needs iterations here, in ascending order");
    }
  }
}

void validate_precision(const Config& config, Problems& problems) {
  const PrecisionConfig& precision = config.precision;
  const PrecisionConfig usual;
  constexpr auto kDtype = "/precision/dtype";
  if (problems.sound({kDtype, "/precision/grad_accum_dtype"}) &&
      precision.grad_accum_dtype != "fp32" && precision.grad_accum_dtype != precision.dtype) {
    problems.add("/precision/grad_accum_dtype",
                 fmt::format("\"{}\" is neither \"fp32\" nor precision.dtype (\"{}\"); use one of "
                             "the two",
                             precision.grad_accum_dtype, precision.dtype));
  }
  if (problems.sound({kDtype, "/precision/tf32"}) && precision.tf32 && precision.dtype != "fp32") {
    problems.add("/precision/tf32",
                 fmt::format("does nothing for dtype \"{}\"; leave it out, or use \"fp32\"",
                             precision.dtype));
  }
  if (!problems.sound({kDtype, "/precision/loss_scale"})) return;
  const auto refuse = [&](const char* path, bool changed) {
    if (!changed || !problems.sound(path)) return;
    if (precision.dtype != "fp16") {
      problems.add(path, fmt::format("does nothing for dtype \"{}\"; leave it out, or use \"fp16\"",
                                     precision.dtype));
    } else if (precision.loss_scale != 0) {
      problems.add(path,
                   fmt::format("does nothing beside a fixed loss_scale ({}); leave one of them "
                               "out",
                               precision.loss_scale));
    }
  };
  if (precision.dtype != "fp16") refuse("/precision/loss_scale", precision.loss_scale != 0);
  refuse("/precision/initial_scale_power",
         precision.initial_scale_power != usual.initial_scale_power);
  refuse("/precision/loss_scale_window", precision.loss_scale_window != usual.loss_scale_window);
  refuse("/precision/hysteresis", precision.hysteresis != usual.hysteresis);
  refuse("/precision/min_loss_scale", precision.min_loss_scale != usual.min_loss_scale);
  if (precision.dtype != "fp16") return;
  if (precision.loss_scale > 0 && precision.loss_scale < 0x1p-64) {
    problems.add("/precision/loss_scale",
                 fmt::format("{} leaves nothing of the gradients; use at least {}, or 0, which "
                             "adapts it",
                             precision.loss_scale, 0x1p-64));
  }
  const double initial = std::ldexp(1.0, static_cast<int>(precision.initial_scale_power));
  if (precision.loss_scale == 0 &&
      problems.sound({"/precision/initial_scale_power", "/precision/min_loss_scale"}) &&
      initial < precision.min_loss_scale) {
    problems.add("/precision/min_loss_scale",
                 fmt::format("{} is above the scale that initial_scale_power ({}) begins with, {}; "
                             "use at most that",
                             precision.min_loss_scale, precision.initial_scale_power, initial));
  }
  if (problems.sound("/pipeline/schedule") && config.pipeline.schedule == "pipedream") {
    problems.add(kDtype,
                 "\"fp16\" leaves out steps that overflow, but schedule \"pipedream\" has made "
                 "their updates by then; use \"bf16\", or schedule \"pipedream_2bw\"");
  }
}

void validate_data(const Config& config, Problems& problems) {
  const DataConfig& data = config.data;
  if (problems.sound("/data/split") && !parse_split(data.split)) {
    problems.add("/data/split", fmt::format("\"{}\" is not one to three sizes, joined by commas, "
                                            "the first above 0; use \"949,50,1\"",
                                            data.split));
  }
  if (problems.sound("/data/split") && !data.split.empty() && !data.validation.empty()) {
    problems.add("/data/split", "is given beside data.validation; leave one of them out");
  }
  if (problems.sound("/data/tokenizer/type")) {
    if (data.tokenizer.type == "byte") {
      if (!data.tokenizer.path.empty()) {
        problems.add("/data/tokenizer/path",
                     "does nothing for type \"byte\"; leave it out, or use \"file\"");
      }
    } else if (data.tokenizer.path.empty() && problems.sound("/data/tokenizer/path")) {
      problems.add("/data/tokenizer/path",
                   "is missing; type \"file\" needs the path of a tokenizer.json");
    }
  }
  if (config.checkpoint.load == "auto" && problems.sound("/checkpoint/load")) {
    problems.add("/checkpoint/load",
                 "\"auto\" is not available yet (it comes with checkpoints); "
                 "name a Hugging Face directory, or leave it out");
  }
}

// Each key has a range of its own; these are what sizes may come to together, so that no count of
// elements, bytes or tokens leaves 64 bits, nor a rank's number 32.
void validate_sizes(const Config& config, Problems& problems) {
  constexpr double kElements = 1e15;
  constexpr double kCount = std::numeric_limits<std::int32_t>::max();
  const auto at_most = [&](const char* path, double size, double limit, std::string_view what) {
    if (size <= limit) return;
    problems.add(path,
                 fmt::format("makes {:.3g} {}; at most {:.3g} are possible", size, what, limit));
  };
  const ModelConfig& model = config.model;
  const auto of = [](std::int64_t size) { return static_cast<double>(size); };
  if (problems.sound({kData, kTensor, kPipeline})) {
    double ranks = 1;
    for (const MeshAxis& axis : config.parallel.axes()) ranks *= of(axis.size);
    at_most(kData, ranks, kCount, "ranks");
  }
  constexpr auto kVocabulary = "/model/vocab_size";
  constexpr auto kLayers = "/model/num_layers";
  constexpr auto kLength = "/data/sequence_length";
  constexpr auto kMicro = "/batch/micro_batch_size";
  constexpr auto kDivisor = "/model/make_vocab_size_divisible_by";
  if (!problems.sound({kHidden, kHeads, kFfn, kLayers, kVocabulary, kTensor, kDivisor})) return;
  const double vocabulary =
      of(model.vocab_size) +
      of(model.make_vocab_size_divisible_by) * of(config.parallel.tensor_model_parallel_size);
  const double hidden = of(model.hidden_size), ffn = of(model.ffn_hidden_size);
  at_most(kHidden, hidden * (of(model.num_layers) * (4 * hidden + 3 * ffn) + 2 * vocabulary),
          kElements, "parameters");
  if (!problems.sound({kLength, kMicro, "/batch/gradient_accumulation_steps",
                       "/batch/global_batch_size", "/training/train_iters"})) {
    return;
  }
  const double length = of(config.data.sequence_length);
  const double tokens = of(config.batch.micro_batch_size) * length;
  at_most(kMicro, tokens * of(config.batch.gradient_accumulation_steps), kCount,
          "tokens of an iteration on one rank");
  at_most(kMicro, tokens * std::max({vocabulary, 2 * ffn, of(model.num_attention_heads) * length}),
          kElements, "elements of an activation");
  at_most("/training/train_iters",
          of(config.training.train_iters) * of(config.batch.global_batch_size) * length, 4e18,
          "tokens of the run");
}

// Links are looked at when the folders are (training/run_folder.h).
void validate_folders(const Config& config, Problems& problems) {
  constexpr auto kSave = "/checkpoint/save";
  if (!problems.sound({"/logging/dir", kSave}) || config.checkpoint.save.empty()) return;
  const auto normal = [](const std::string& directory) {
    return (std::filesystem::path(directory) / "").lexically_normal();
  };
  if (normal(config.logging.dir) != normal(config.checkpoint.save)) return;
  problems.add(
      kSave,
      fmt::format(
          "\"{}\" is logging.dir, too, and each has a config.json of its "
          "own; use another directory, such as \"{}\"",
          config.checkpoint.save,
          (std::filesystem::path(config.checkpoint.save) / "weights").lexically_normal().string()));
}

}  // namespace

void validate_iterations(const Config& config, Problems& problems) {
  const LrSchedulerConfig& scheduler = config.scheduler;
  constexpr auto kWarmup = "/scheduler/warmup_iters";
  constexpr auto kDecay = "/scheduler/decay_iters";
  if (problems.sound({kWarmup, "/scheduler/warmup_ratio"}) && scheduler.warmup_iters != 0 &&
      scheduler.warmup_ratio != 0) {
    problems.add(kWarmup, "is given beside warmup_ratio; leave one of them out");
  }
  const std::int64_t iterations = config.training.train_iters;
  if (problems.sound({kWarmup, kDecay, "/scheduler/type", "/training/train_iters"}) &&
      scheduler.decay_iters != 0 && scheduler.type != "constant" && scheduler.type != "piecewise" &&
      scheduler.warmup_iters >= scheduler.decay_iters) {
    problems.add(
        kWarmup,
        fmt::format("{} leaves nothing of decay_iters ({}) to type \"{}\"; use at most {}, "
                    "or type \"constant\"",
                    scheduler.warmup_iters, scheduler.decay_iters, scheduler.type,
                    scheduler.decay_iters - 1));
  }
  constexpr auto kDump = "/logging/dump_gradients_at";
  for (const std::int64_t iteration : config.logging.dump_gradients_at) {
    if (iterations == 0 || iteration <= iterations || !problems.sound(kDump)) continue;
    problems.add(kDump, fmt::format("{} is beyond the last iteration, training.train_iters ({})",
                                    iteration, iterations));
  }
}

void validate(const Config& config, Problems& problems) {
  validate_model(config, problems);
  validate_tensor_parallel(config, problems);
  validate_pipeline(config, problems);
  validate_layout(config, problems);
  validate_optimizer(config, problems);
  validate_precision(config, problems);
  validate_data(config, problems);
  validate_sizes(config, problems);
  validate_folders(config, problems);
  if (problems.sound({"/training/train_iters", "/training/train_epochs"}) &&
      config.training.train_iters != 0 && config.training.train_epochs != 0) {
    problems.add("/training/train_epochs", "is given beside train_iters; leave one of them out");
  }
  validate_iterations(config, problems);
}

std::optional<std::array<double, 3>> parse_split(const std::string& split) {
  std::array<double, 3> parts{};
  if (split.empty()) return std::array<double, 3>{1.0, 0.0, 0.0};
  const char* at = split.data();
  const char* const end = at + split.size();
  for (double& part : parts) {
    const auto [stop, code] = std::from_chars(at, end, part, std::chars_format::fixed);
    if (code != std::errc{} || !(part >= 0.0 && part < 1e15)) return std::nullopt;
    at = stop;
    if (at == end) break;
    if (*at != ',' || &part == &parts.back()) return std::nullopt;
    ++at;
  }
  const double sum = parts[0] + parts[1] + parts[2];
  if (!(parts[0] > 0.0)) return std::nullopt;
  for (double& part : parts) part /= sum;
  return parts;
}

}  // namespace config_detail

std::array<double, 3> DataConfig::split_fractions() const {
  const auto fractions = config_detail::parse_split(split);
  if (!fractions) throw RequestError("config: /data/split: \"" + split + "\" is malformed");
  return *fractions;
}

}  // namespace trident

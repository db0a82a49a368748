// Defaults that follow from other keys. What follows from a key that has a problem is unsound too,
// so that one mistake isn't reported twice.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "config/fields.h"
#include "core/error.h"
#include "core/printable.h"
#include "training/layer_split.h"

namespace trident {
namespace config_detail {
namespace {

class Resolver {
 public:
  Resolver(Config& config, const Given& given, const LoadOptions& options, Problems& problems)
      : config_(config), given_(given), options_(options), problems_(problems) {}

  void model();
  void parallel();
  void layer_split();
  void batch();
  void run(const std::string& name);

 private:
  bool given(std::string_view path) const { return given_.contains(path); }

  // Calls `set` for a key that wasn't given, if everything that it follows from is sound.
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
  const bool llama = model.architecture == "llama";
  derive("/model/num_query_groups", {"/model/num_attention_heads"},
         [&] { model.num_query_groups = model.num_attention_heads; });
  derive("/model/ffn_hidden_size", {"/model/architecture", "/model/hidden_size"}, [&] {
    model.ffn_hidden_size = 4 * model.hidden_size;
    if (!llama) return;
    const std::int64_t usual = (8 * model.hidden_size / 3 + 63) / 64 * 64;
    problems_.add("/model/ffn_hidden_size",
                  fmt::format("must be given for llama; about 8/3 of hidden_size ({}) is usual: {}",
                              model.hidden_size, usual));
  });
  derive("/model/tie_word_embeddings", {"/model/architecture"},
         [&] { model.tie_word_embeddings = !llama; });
  if (!given("/data/sequence_length") && !given("/model/max_position_embeddings")) {
    problems_.add("/data/sequence_length",
                  "is missing; give it, or model.max_position_embeddings, which it then equals");
    problems_.spoil("/model/max_position_embeddings");
  }
  derive("/data/sequence_length", {"/model/max_position_embeddings"},
         [&] { sequence = model.max_position_embeddings; });
  derive("/model/max_position_embeddings", {"/data/sequence_length"},
         [&] { model.max_position_embeddings = sequence; });
  derive("/model/vocab_size", {"/data/tokenizer/type"}, [&] {
    model.vocab_size = 256;
    if (config_.data.tokenizer.type == "byte") return;
    problems_.add("/model/vocab_size",
                  fmt::format("must be given for tokenizer type \"{}\": the number of its ids",
                              config_.data.tokenizer.type));
  });
}

void Resolver::parallel() {
  constexpr auto kPath = "/parallel/data_parallel_size";
  std::int64_t& data = config_.parallel.data_parallel_size;
  std::int64_t replica = 1;
  std::string sizes;
  bool sound = true;
  for (const MeshAxis& axis : config_.parallel.axes()) {
    const std::string path = "/parallel/" + axis.key;
    sound = sound && (axis.key.empty() || problems_.sound(path));
    if (path == kPath) continue;
    replica *= axis.size;
    sizes += fmt::format("{}{} ({})", sizes.empty() ? "" : " × ", axis.title, axis.size);
  }
  if (!sound) {
    problems_.spoil(kPath);
    return;
  }
  if (data == 0 && options_.ranks) {
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

void Resolver::layer_split() {
  constexpr auto kChunks = "/parallel/virtual_pipeline_model_parallel_size";
  constexpr auto kPipeline = "/parallel/pipeline_model_parallel_size";
  if (given("/pipeline/schedule") && !given("/pipeline/schedule_file")) {
    derive(kChunks, {"/pipeline/schedule"}, [&] {
      config_.parallel.virtual_pipeline_model_parallel_size =
          chunk_rule(config_.pipeline.schedule) == ChunkRule::two ||
                  chunk_rule(config_.pipeline.schedule) == ChunkRule::several
              ? 2
              : 1;
    });
  }
  const std::int64_t chunks = config_.parallel.virtual_pipeline_model_parallel_size;
  derive("/pipeline/schedule", {kChunks},
         [&] { config_.pipeline.schedule = chunks > 1 ? "interleaved_1f1b" : "1f1b"; });
  auto& split = config_.pipeline.layer_split;
  const bool balanced = split == std::vector<std::int64_t>{0};
  if (!problems_.sound("/pipeline/layer_split") || (!split.empty() && !balanced)) return;
  if (!problems_.sound({kChunks, kPipeline, "/model/num_layers"})) {
    problems_.spoil("/pipeline/layer_split");
    return;
  }
  const std::int64_t layers = config_.model.num_layers;
  const std::int64_t stages = config_.stages();
  if (stages > layers) {
    const std::int64_t most = layers / chunks;
    problems_.add(kPipeline,
                  fmt::format("pipeline ({}) × chunks ({}) = {} stages, more than num_layers ({}); "
                              "{}",
                              config_.parallel.pipeline_model_parallel_size, chunks, stages, layers,
                              most > 0 ? fmt::format("use at most {}", most) : "use fewer chunks"));
    problems_.spoil("/pipeline/layer_split");
    return;
  }
  if (balanced) {
    const LayerCosts costs = layer_costs(config_);
    // A file's own placement is not known here, nor auto's: taken as looped.
    const bool own = !config_.pipeline.schedule_file.empty();
    const bool v_shaped = !own && chunk_rule(config_.pipeline.schedule) == ChunkRule::two;
    const auto p = static_cast<int>(config_.parallel.pipeline_model_parallel_size);
    split = balanced_split(
        {.layers = layers,
         .layer = costs.layer.total(),
         .first = costs.embedding.total(),
         .last = costs.head.total(),
         .rank_of_stage = rank_of_stages(p, static_cast<int>(chunks), v_shaped && chunks == 2)});
    return;
  }
  split.assign(static_cast<std::size_t>(stages), layers / stages);
  for (std::int64_t i = 0; i < layers % stages; ++i) ++split[static_cast<std::size_t>(i)];
}

// As DeepSpeed derives them: accumulation counts as 1 where only one of the other two is given.
void Resolver::batch() {
  constexpr auto kGlobal = "/batch/global_batch_size";
  auto& [global, micro, accumulation] = config_.batch;
  const std::int64_t data = config_.parallel.ranks(Group::batch);
  if (!problems_.sound({kGlobal, "/batch/micro_batch_size", "/batch/gradient_accumulation_steps",
                        "/parallel/data_parallel_size"})) {
    problems_.spoil("/batch/micro_batch_size");
    return;
  }
  constexpr auto kMicro = "/batch/micro_batch_size";
  if (given(kMicro) && micro == 0) {  // "auto"
    if (global == 0) {
      problems_.add(kMicro,
                    "\"auto\" divides global_batch_size, which is missing; give it, or a "
                    "number here");
      problems_.spoil(kMicro);
      return;
    }
    if (accumulation == 0 && !options_.micro_batch_size) {
      problems_.add(kMicro,
                    "\"auto\" needs the memory of a run, which only train, plan and bench "
                    "know; give a number here");
      problems_.spoil(kMicro);
      return;
    }
    if (accumulation == 0) micro = *options_.micro_batch_size;
    if (accumulation == 0 && micro == 0) micro = std::max<std::int64_t>(1, global / data);
  }
  if (global == 0 && micro == 0) {
    problems_.add(kGlobal, "is missing; give it, or micro_batch_size");
    problems_.spoil("/batch/micro_batch_size");
    return;
  }
  const auto divide = [&](const std::string& factors, std::int64_t unit, std::int64_t& part) {
    if (global % unit == 0) {
      part = global / unit;
      return;
    }
    problems_.add(kGlobal, fmt::format("{} is not a multiple of {} = {}; use {}", global, factors,
                                       unit, multiples_near(unit, global)));
    problems_.spoil("/batch/micro_batch_size");
  };
  const auto factor = [](const char* key, std::int64_t value) {
    return fmt::format("{} ({})", key, value);
  };
  const std::string micro_text = factor("micro_batch_size", micro);
  std::string data_text;
  for (const MeshAxis& axis : config_.parallel.axes()) {
    if (!axis.in(Group::batch)) continue;
    data_text += (data_text.empty() ? "" : " × ") +
                 factor(axis.key.empty() ? axis.name.c_str() : axis.key.c_str(), axis.size);
  }
  if (accumulation == 0 && global != 0 && micro != 0) {
    divide(micro_text + " × " + data_text, micro * data, accumulation);
    return;
  }
  if (accumulation == 0) accumulation = 1;
  const std::string accumulation_text = factor("gradient_accumulation_steps", accumulation);
  if (micro == 0) {
    divide(accumulation_text + " × " + data_text, accumulation * data, micro);
    return;
  }
  const std::int64_t product = micro * accumulation * data;
  if (global == 0) global = product;
  if (global != product) {
    problems_.add(kGlobal,
                  fmt::format("{} is not {} × {} × {} = {}; use {}, or leave one of the "
                              "three out",
                              global, micro_text, accumulation_text, data_text, product, product));
  }
}

void Resolver::run(const std::string& name) {
  TrainingConfig& training = config_.training;
  RuntimeConfig& runtime = config_.runtime;
  derive("/zero_optimization/reduce_each_micro_batch", {"/zero_optimization/stage"}, [&] {
    config_.zero_optimization.reduce_each_micro_batch = config_.zero_optimization.stage >= 2;
  });
  derive("/optimizer/params/weight_decay", {"/optimizer/type"}, [&] {
    if (config_.optimizer.type != "AdamW") config_.optimizer.params.weight_decay = 0.0;
  });
  if (!given("/training/train_iters")) {
    derive("/training/train_epochs", {}, [&] { training.train_epochs = 1; });
  }
  resolve_iterations(config_);
  if (runtime.device == "auto") runtime.device = options_.device;
  if (!given("/training/deterministic")) training.deterministic = runtime.device == "cpu";
  if (runtime.transport == "auto") {
    runtime.transport = options_.transport;
    const std::int64_t world = problems_.sound("/parallel/data_parallel_size")
                                   ? config_.world_size()
                                   : options_.ranks.value_or(1);
    const bool own_gpus =
        runtime.device == "cuda" && options_.local_ranks.value_or(world) <= options_.gpus;
    if (own_gpus && (runtime.transport == "mpi" || world > 1)) runtime.transport = "nccl";
  }
  if (runtime.collective_algorithm == "auto" && training.deterministic) {
    runtime.collective_algorithm = "direct";
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
}

void resolve(Config& config, const Given& given, const LoadOptions& options,
             const std::string& name, Problems& problems) {
  Resolver resolver(config, given, options, problems);
  resolver.model();
  resolver.parallel();
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

ChunkRule chunk_rule(std::string_view schedule) {
  if (schedule == "zbv" || schedule == "dualpipev") return ChunkRule::two;
  if (schedule == "interleaved_1f1b" || schedule == "interleaved_zero_bubble" ||
      schedule == "looped_bfs") {
    return ChunkRule::several;
  }
  return schedule == "auto" ? ChunkRule::any : ChunkRule::one;
}

std::vector<MeshAxis> ParallelConfig::axes() const {
  std::vector<MeshAxis> axes{{.name = "dp",
                              .title = "data",
                              .key = "data_parallel_size",
                              .size = data_parallel_size,
                              .groups = {Group::batch, Group::shard, Group::loss}},
                             {.name = "tp",
                              .title = "tensor",
                              .key = "tensor_model_parallel_size",
                              .size = tensor_model_parallel_size,
                              .groups = {Group::tensor}},
                             {.name = "pp",
                              .title = "pipeline",
                              .key = "pipeline_model_parallel_size",
                              .size = pipeline_model_parallel_size,
                              .groups = {Group::pipeline}}};
  axes.insert(axes.end(), more_axes.begin(), more_axes.end());
  return axes;
}

std::int64_t Config::world_size() const {
  return trident::world_size(parallel.axes());
}

std::int64_t Config::num_microbatches() const {
  return batch.gradient_accumulation_steps;
}

std::int64_t Config::stages() const {
  return parallel.pipeline_model_parallel_size * parallel.virtual_pipeline_model_parallel_size;
}

std::int64_t Config::padded_vocab_size() const {
  const std::int64_t unit =
      model.make_vocab_size_divisible_by * parallel.tensor_model_parallel_size;
  return (model.vocab_size + unit - 1) / unit * unit;
}

std::int64_t Config::head_dim() const {
  return model.hidden_size / model.num_attention_heads;
}

}  // namespace trident

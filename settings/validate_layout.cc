// The constraints on the layout of ranks and on the pipeline.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "base/units.h"
#include "settings/fields.h"
#include "settings/paths.h"
#include "settings/pipeline_sizes.h"

namespace trident::config_detail {
namespace {

void validate_chunks(const Config& config, const ScheduleConstraints& kind, Problems& problems) {
  const std::int64_t pipeline = config.parallel.pipeline_model_parallel_size;
  const std::int64_t chunks = config.parallel.virtual_pipeline_model_parallel_size;
  const auto choices = [&](const char* path) { return pipeline_choices(config, &kind, path); };
  if (kind.chunks == ChunkRule::one && chunks > 1) {
    problems.add(kChunks,
                 fmt::format("{} chunks don't fit schedule \"{}\", which has one a rank; {}",
                             chunks, kind.name, choices(kChunks)));
  } else if (kind.chunks == ChunkRule::two && chunks != 2) {
    problems.add(kChunks,
                 fmt::format("{} chunk{} fit schedule \"{}\", which has two a rank; {}", chunks,
                             chunks == 1 ? " doesn't" : "s don't", kind.name, choices(kChunks)));
  } else if (kind.grouped && chunks < 2) {
    problems.add(kChunks, fmt::format("1 chunk is too few for schedule \"{}\"; {}", kind.name,
                                      choices(kChunks)));
  } else if (kind.grouped && pipeline < 2) {  // the schedule has no ungrouped form
    problems.add(kPipeline, fmt::format("{} rank can't interleave {} chunks; {}", pipeline, chunks,
                                        choices(kPipeline)));
  }
}

// The inner width of the MLPs; 0, which each size divides, where all layers have experts.
std::int64_t mlp_width(const ModelConfig& model) {
  const bool experts =
      model.moe.has_experts() && std::ssize(model.moe.layers()) == model.num_layers;
  return experts ? 0 : model.ffn_hidden_size;
}

// The largest valid tensor-parallel size; the valid sizes are its divisors.
std::int64_t largest_tensor_size(const ModelConfig& model) {
  return std::gcd(std::gcd(model.num_attention_heads, model.num_query_groups),
                  std::gcd(mlp_width(model), model.moe.shared_expert_intermediate_size));
}

// Sizes that sequence parallelism can shard evenly: "a sequence_length of 8 or 12", at most
// max_position_embeddings, or else a micro-batch of more samples.
std::string shareable_rows(const Config& config) {
  const std::int64_t tensor = config.parallel.tensor_model_parallel_size;
  const std::int64_t sequence = config.data.sequence_length;
  const std::int64_t below = sequence / tensor * tensor;
  std::vector<std::string> lengths;
  for (const std::int64_t length : {below, below + tensor}) {
    if (length > 0 && length <= config.model.max_position_embeddings) {
      lengths.push_back(fmt::format("{}", length));
    }
  }
  if (!lengths.empty()) return "a sequence_length of " + list_or(lengths);
  const std::int64_t unit = tensor / std::gcd(tensor, sequence);
  return "a micro_batch_size of " + multiples_near(unit, config.batch.micro_batch_size);
}

// Checks a user's own schedule. Its sizes are checked when the file is read.
void validate_schedule_file(const ScheduleConstraints& kind, Problems& problems) {
  if (!kind.flushed) {
    problems.add(kScheduleFile,
                 fmt::format("a schedule of your own is flushed at the end of each iteration, "
                             "schedule \"{}\" is not; leave one of the two out",
                             kind.name));
  }
}

// "LEAD schedule "pipedream_2bw"": an asynchronous schedule whose stages update together.
std::string or_whole_iterations(const ConfigConstraints& constraints, const char* lead) {
  const auto names = names_where(constraints.schedules, [](const ScheduleConstraints& kind) {
    return !kind.flushed && !kind.each_microbatch;
  });
  return names.empty() ? "" : fmt::format("{}schedule \"{}\"", lead, names.front());
}

// Refuses requests that need a common update of all stages.
void validate_each_microbatch(const Config& config, const ScheduleConstraints& kind,
                              Problems& problems) {
  const std::string other = or_whole_iterations(*config.constraints, ", or ");
  if (config.gradient_clipping > 0 && problems.sound("/gradient_clipping")) {
    problems.add("/gradient_clipping",
                 fmt::format("{} needs the norm over all stages at every update, for which "
                             "schedule \"{}\" would have to be flushed; use 0{}",
                             config.gradient_clipping, kind.name, other));
  }
  if (config.training.on_non_finite == "skip" && problems.sound("/training/on_non_finite")) {
    problems.add("/training/on_non_finite",
                 fmt::format("\"skip\" can't leave out updates that schedule \"{}\" has made; use "
                             "\"stop\"",
                             kind.name));
  }
  if (config.model.tie_word_embeddings && config.parallel.pipeline_model_parallel_size > 1 &&
      problems.sound("/model/tie_word_embeddings")) {
    problems.add("/model/tie_word_embeddings",
                 fmt::format("the first and the last stage would have to update together, but in "
                             "schedule \"{}\" each updates by itself; use false{}",
                             kind.name, other));
  }
  if (config.model.mtp_num_layers > 0 && config.parallel.pipeline_model_parallel_size > 1 &&
      problems.sound(kMtpLayers)) {
    problems.add(kMtpLayers,
                 fmt::format("these layers use the embedding, which the first and the last stage "
                             "would have to update together, but in schedule \"{}\" each updates "
                             "by itself; use 0{}",
                             kind.name, other));
  }
  if (!config.logging.dump_gradients_at.empty() && problems.sound("/logging/dump_gradients_at")) {
    problems.add("/logging/dump_gradients_at",
                 fmt::format("schedule \"{}\" has no gradient of a full iteration; leave it out",
                             kind.name));
  }
}

void validate_layer_split(const Config& config, Problems& problems) {
  if (!problems.sound({kLayerSplit, kPipeline, kChunks, kLayers})) return;
  const auto& split = config.pipeline.layer_split;
  const std::int64_t sum = std::accumulate(split.begin(), split.end(), std::int64_t{0});
  const auto count = static_cast<std::int64_t>(split.size());
  if (count != config.stages()) {
    problems.add(
        kLayerSplit,
        fmt::format("has {}, but pipeline ({}) × chunks ({}) = {}; use {}, or \"even\"",
                    counted(count, "number"), config.parallel.pipeline_model_parallel_size,
                    config.parallel.virtual_pipeline_model_parallel_size,
                    counted(config.stages(), "stage"), counted(config.stages(), "number")));
  } else if (sum != config.model.num_layers) {
    problems.add(kLayerSplit, fmt::format("sums to {}, not to num_layers ({}); change it, or use "
                                          "\"even\"",
                                          sum, config.model.num_layers));
  }
}

// All batches of a ramp consist of micro-batches of the same size.
void validate_rampup(const Config& config, Problems& problems) {
  const BatchConfig& batch = config.batch;
  const std::vector<std::int64_t>& ramp = batch.rampup_batch_size;
  if (ramp.empty() || !problems.sound({kRampup, kGlobal, kMicro, kAccumulation})) return;
  if (ramp.size() != 3) {
    problems.add(kRampup, fmt::format("has {} numbers; use three, [start, increment, samples]",
                                      ramp.size()));
    return;
  }
  const std::int64_t start = ramp[0], increment = ramp[1], global = batch.global_batch_size;
  const std::int64_t unit = global / batch.gradient_accumulation_steps;
  if (start >= global) {
    problems.add(kRampup, fmt::format("start {} is not below global_batch_size ({}); use less, or "
                                      "leave the ramp out",
                                      start, global));
  } else if ((global - start) % increment != 0) {
    problems.add(kRampup,
                 fmt::format("increments of {} don't lead from {} to global_batch_size ({}); use "
                             "one that divides {}",
                             increment, start, global, global - start));
  } else if (start % unit != 0 || increment % unit != 0) {
    problems.add(kRampup, fmt::format("start {} and increment {} have to be multiples of {}, the "
                                      "sequences of one micro-batch of each replica",
                                      start, increment, unit));
  } else if ((global - start) / increment > 1'000) {
    problems.add(kRampup, fmt::format("{} increments; at most 1000 are possible",
                                      (global - start) / increment));
  }
  if (!problems.sound({kSchedule, kScheduleFile})) return;
  if (!config.pipeline.schedule_file.empty()) {
    problems.add(
        kRampup,
        "a schedule_file is made for one number of micro-batches; leave one of the two out");
  } else if (const ScheduleConstraints& kind = schedule_constraints(config); !kind.flushed) {
    problems.add(
        kRampup,
        fmt::format("schedule \"{}\" has one number of micro-batches for the whole run; use "
                    "one that flushes such as \"{}\"",
                    kind.name, default_schedule(config.constraints->schedules, false)));
  }
}

void validate_algorithm(const Config& config, Problems& problems) {
  const std::string& name = config.runtime.collective_algorithm;
  const AlgorithmConstraints* const algorithm = find_row(config.constraints->algorithms, name);
  if (algorithm == nullptr || algorithm->in_rank_order) return;
  const std::int64_t world = config.world_size();
  if (problems.sound({kAlgorithm, "/training/deterministic"}) && world > 2 &&
      config.training.deterministic) {
    const auto ordered =
        names_where(config.constraints->algorithms, &AlgorithmConstraints::in_rank_order);
    problems.add(kAlgorithm,
                 fmt::format("\"{}\" doesn't add in rank order on {} ranks, which "
                             "training.deterministic asks for; use {}deterministic false",
                             name, world,
                             ordered.empty() ? "" : fmt::format("\"{}\", or ", ordered.front())));
  }
}

void validate_transport(const Config& config, Problems& problems) {
  if (!problems.sound({kTransport, kDevice})) return;
  const TransportConstraints& transport = transport_constraints(config);
  const bool cuda = config.runtime.device == "cuda";
  if (cuda && !transport.gpu) {
    const auto others =
        names_where(config.constraints->transports, &TransportConstraints::gpu_for_each_rank);
    problems.add(kTransport, fmt::format("\"{}\" carries no tensors of a GPU; use {}device \"cpu\"",
                                         transport.name,
                                         others.empty() ? "" : '"' + others.front() + "\", or "));
  } else if (!cuda && !transport.cpu) {
    problems.add(kTransport, fmt::format("\"{}\" carries tensors of GPUs only, runtime.device is "
                                         "\"{}\"; use \"auto\"",
                                         transport.name, config.runtime.device));
  }
}

}  // namespace

void validate_tensor_parallel(const Config& config, Problems& problems) {
  const std::int64_t tensor = config.parallel.tensor_model_parallel_size;
  if (problems.sound({kTensor, kHeads, kGroups, kFfn})) {
    const ModelConfig& model = config.model;
    const std::int64_t common = largest_tensor_size(model);
    const auto check = [&](const char* name, std::int64_t size) {
      if (size % tensor == 0 || !problems.sound(kTensor)) return;
      problems.add(kTensor, fmt::format("{} does not divide {} ({}); use {}", tensor, name, size,
                                        divisors_near(common, tensor)));
    };
    check("num_attention_heads", model.num_attention_heads);
    check("num_query_groups", model.num_query_groups);
    check("ffn_hidden_size", mlp_width(model));
    check("moe.shared_expert_intermediate_size", model.moe.shared_expert_intermediate_size);
  }
  constexpr auto kSequence = "/parallel/sequence_parallel";
  if (problems.sound({kSequence, "/parallel/tp_comm_overlap"}) && config.parallel.tp_comm_overlap &&
      !config.parallel.sequence_parallel) {
    problems.add("/parallel/tp_comm_overlap",
                 "true needs sequence_parallel, whose gathers and reductions it splits");
  }
  if (!config.parallel.sequence_parallel || !problems.sound({kTensor, kSequence})) return;
  const bool shares_samples =  // validate_context_rows() checks each rank's part
      problems.sound(kContext) && config.parallel.context_parallel_size > 1;
  if (problems.sound({kMicro, "/data/sequence_length"}) && !shares_samples) {
    const std::int64_t rows = config.batch.micro_batch_size * config.data.sequence_length;
    if (rows % tensor != 0) {
      problems.add(kSequence,
                   fmt::format("micro_batch_size ({}) × sequence_length ({}) = {} tokens can't be "
                               "shared by tensor_model_parallel_size ({}); use {}",
                               config.batch.micro_batch_size, config.data.sequence_length, rows,
                               tensor, shareable_rows(config)));
    }
  }
}

namespace {

// The rows of a micro-batch on a rank, as parallel/context/sequence_pieces.h divides samples.
std::int64_t rows_of_context(const Config& config, std::int64_t sequence, std::int64_t rank) {
  const std::int64_t pieces = 2 * config.parallel.context_parallel_size, rest = sequence % pieces;
  return config.batch.micro_batch_size *
         (2 * (sequence / pieces) + (2 * rank < rest ? 1 : 0) + (2 * rank + 1 < rest ? 1 : 0));
}

// Checks that the tensor ranks can share the rows of each rank.
void validate_context_rows(const Config& config, Problems& problems) {
  const std::int64_t ranks = config.parallel.context_parallel_size,
                     tensor = config.parallel.tensor_model_parallel_size,
                     sequence = config.data.sequence_length;
  if (!config.parallel.sequence_parallel || !problems.sound({kTensor, kMicro})) return;
  // The first rank whose rows can't be shared; `ranks` if there is none.
  const auto first_uneven = [&](std::int64_t length) {
    std::int64_t rank = 0;
    while (rank < ranks && rows_of_context(config, length, rank) % tensor == 0) ++rank;
    return rank;
  };
  const std::int64_t rank = first_uneven(sequence);
  if (rank == ranks) return;
  std::vector<std::string> lengths;
  std::int64_t below = sequence, above = sequence;
  while (below >= 2 * ranks && first_uneven(below) < ranks) --below;
  while (first_uneven(above) < ranks) ++above;  // multiples of 2 · ranks · tensor fit
  if (below >= 2 * ranks) lengths.push_back(std::to_string(below));
  if (above <= config.model.max_position_embeddings) lengths.push_back(std::to_string(above));
  problems.add(
      kContext,
      fmt::format("rank {} of {} has {} rows of a micro-batch, which tensor_model_parallel_size "
                  "({}) can't share under sequence_parallel; use {}sequence_parallel false",
                  rank, ranks, rows_of_context(config, sequence, rank), tensor,
                  lengths.empty() ? "" : "a sequence_length of " + list_or(lengths) + ", or "));
}

// "[2, 4] or [4, 2]": two sizes of at least 2, the first of which divides the heads.
std::string context_sizes(std::int64_t ranks, std::int64_t heads) {
  std::vector<std::string> choices;
  for (std::int64_t size = 2; size <= ranks / 2; ++size) {
    if (ranks % size != 0 || heads % size != 0) continue;
    choices.push_back(fmt::format("[{}, {}]", size, ranks / size));
  }
  if (choices.size() > 6) choices.resize(6);
  return choices.empty() ? "cp_comm_type \"p2p\"" : list_or(choices);
}

// Checks that the ranks that exchange heads divide those of a tensor rank.
void validate_context_heads(const Config& config, Problems& problems) {
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t ranks = parallel.context_parallel_size;
  const std::vector<std::int64_t>& sizes = parallel.hierarchical_context_parallel_sizes;
  const bool both = parallel.cp_comm_type == ParallelConfig::both_exchanges;
  if (!problems.sound({kContext, kContextExchange, kContextSizes})) return;
  if (!both && !sizes.empty()) {
    problems.add(kContextSizes,
                 fmt::format("belongs to cp_comm_type \"{}\"; leave it out, or use it",
                             ParallelConfig::both_exchanges));
  }
  if ((!both && parallel.cp_comm_type != "a2a") ||
      !problems.sound({kContextSizes, kTensor, kHeads, kGroups})) {
    return;
  }
  const ModelConfig& model = config.model;
  const std::int64_t tensor = parallel.tensor_model_parallel_size;
  const std::int64_t common = std::gcd(model.num_attention_heads, model.num_query_groups) / tensor;
  const std::string heads =
      fmt::format("the {} heads and {} query groups of a tensor rank",
                  model.num_attention_heads / tensor, model.num_query_groups / tensor);
  if (!both) {
    if (common % ranks == 0) return;
    problems.add(kContext,
                 fmt::format("{} does not divide {}, which cp_comm_type \"a2a\" exchanges; "
                             "use {}, or cp_comm_type \"p2p\"",
                             ranks, heads, divisors_near(common, ranks)));
    return;
  }
  const bool fits = sizes.size() == 2 && sizes[0] > 1 && sizes[1] > 1 && sizes[0] <= ranks &&
                    sizes[1] == ranks / sizes[0] && ranks % sizes[0] == 0;
  if (!fits) {
    problems.add(kContextSizes,
                 fmt::format("needs two sizes of at least 2 whose product is context_parallel_size "
                             "({}), the first a divisor of {}; use {}",
                             ranks, heads, context_sizes(ranks, common)));
  } else if (common % sizes[0] != 0) {
    problems.add(kContextSizes, fmt::format("{} does not divide {}; use {}", sizes[0], heads,
                                            context_sizes(ranks, common)));
  }
}

}  // namespace

void validate_context_parallel(const Config& config, Problems& problems) {
  const std::int64_t ranks = config.parallel.context_parallel_size;
  if (!problems.sound(kContext) || ranks == 1) return;
  if (problems.sound("/data/sequence_length") && config.data.sequence_length < 2 * ranks) {
    problems.add(kContext,
                 fmt::format("{} ranks need two positions each, but sequence_length is {}; use at "
                             "most {}",
                             ranks, config.data.sequence_length,
                             std::max<std::int64_t>(1, config.data.sequence_length / 2)));
    return;
  }
  validate_context_rows(config, problems);
  validate_context_heads(config, problems);
}

void validate_pipeline(const Config& config, Problems& problems) {
  if (problems.sound({kSchedule, kScheduleFile})) {
    const ScheduleConstraints& kind = schedule_constraints(config);
    const bool own = !config.pipeline.schedule_file.empty();
    if (!own && problems.sound({kPipeline, kChunks})) validate_chunks(config, kind, problems);
    if (own) validate_schedule_file(kind, problems);
    if (!own && kind.each_microbatch) validate_each_microbatch(config, kind, problems);
  }
  validate_rampup(config, problems);
  validate_layer_split(config, problems);
}

void validate_zero(const Config& config, Problems& problems) {
  if (!problems.sound({"/zero_optimization/stage", kSchedule})) return;
  const ScheduleConstraints& kind = schedule_constraints(config);
  if (config.zero_optimization.stage != 3 || kind.flushed) return;
  problems.add(
      "/zero_optimization/stage",
      fmt::format("3 keeps one version of the weights in shards, but schedule \"{}\" stashes full "
                  "copies of older ones; use 2, or a schedule that flushes such as \"{}\"",
                  kind.name, default_schedule(config.constraints->schedules, false)));
}

void validate_fp16_schedule(const Config& config, Problems& problems) {
  if (!problems.sound(kSchedule)) return;
  const ScheduleConstraints& kind = schedule_constraints(config);
  if (!kind.each_microbatch) return;
  problems.add("/precision/dtype",
               fmt::format("\"fp16\" leaves out steps that overflow, but schedule \"{}\" has made "
                           "their updates by then; use \"bf16\"{}",
                           kind.name, or_whole_iterations(*config.constraints, ", or ")));
}

void validate_layout(const Config& config, Problems& problems) {
  constexpr auto kOrder = "/parallel/rank_order";
  if (problems.sound(kOrder) && axes_sound(config.parallel, problems) &&
      !axis_order(config.parallel.axes(), config.parallel.rank_order)) {
    const std::vector<std::string> axes = ordered_axes(config.parallel);
    problems.add(kOrder,
                 fmt::format("\"{}\" does not name each of {} once, joined by dashes (an axis of "
                             "size 1 may be left out); use \"{}\"",
                             config.parallel.rank_order, list_and(axes), fmt::join(axes, "-")));
  }
  constexpr auto kNode = "/runtime/ranks_per_node";
  if (!axes_sound(config.parallel, problems)) return;
  const std::int64_t world = config.world_size();
  const std::int64_t node = config.runtime.ranks_per_node;
  if (problems.sound(kNode) && node > 0 && node < world && world % node != 0) {
    problems.add(kNode, fmt::format("{} does not divide the number of ranks ({}); use {}", node,
                                    world, divisors_near(world, node)));
  }
  const AlgorithmConstraints* const algorithm =
      find_row(config.constraints->algorithms, config.runtime.collective_algorithm);
  if (problems.sound({kAlgorithm, kDevice}) && config.runtime.device == "cuda" &&
      algorithm != nullptr && !algorithm->gpu) {
    problems.add(kAlgorithm, fmt::format("\"{}\" is for ranks on the CPU, runtime.device is "
                                         "\"cuda\"; use \"auto\"",
                                         algorithm->name));
    return;
  }
  validate_transport(config, problems);
  validate_algorithm(config, problems);
}

}  // namespace trident::config_detail

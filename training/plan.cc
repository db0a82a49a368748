#include "training/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/layer_split.h"
#include "models/head.h"
#include "parallel/data/bucket_layout.h"
#include "parallel/rank_grid.h"
#include "scheduler/opening.h"
#include "scheduler/simulate.h"
#include "training/memory_plan.h"
#include "training/optimizer.h"
#include "training/rank_model.h"

namespace trident {
namespace {

// Bytes that member `rank` of `size` sends in the direct collectives (parallel/collectives).
std::int64_t all_reduce_sent(std::int64_t elements, std::int64_t element, int size, int rank) {
  const std::int64_t own = elements * (rank + 1) / size - elements * rank / size;
  return (elements - own + own * (size - 1)) * element;
}
std::int64_t scatter_sent(std::int64_t bytes, int size) {
  return bytes / size * (size - 1);
}

struct Share {
  std::vector<Chunk> chunks;
  std::vector<std::shared_ptr<Parameter>> parameters;
  std::vector<BucketLayout> buckets;
};

Share share_of(const Architecture& architecture, const TransformerShape& shape,
               const Config& config, const Schedule& schedule, int tensor, int pipeline) {
  Share share;
  share.chunks = build_chunks(
      architecture, shape,
      TensorParallel{.rank = tensor,
                     .size = static_cast<int>(config.parallel.tensor_model_parallel_size),
                     .sequence_parallel = config.parallel.sequence_parallel},
      config.pipeline.layer_split, schedule.placement[static_cast<std::size_t>(pipeline)]);
  share.parameters = unique_parameters(share.chunks);
  share.buckets = layout_buckets(backward_groups(share.chunks), bucket_limits(config));
  return share;
}

// Bytes sent over the tensor group by the activations of a step.
std::int64_t tensor_sent(const Config& config, const TransformerShape& shape, const Share& share,
                         int stages, int rank) {
  const int t = static_cast<int>(config.parallel.tensor_model_parallel_size);
  if (t == 1) return 0;
  const bool sequence_parallel = config.parallel.sequence_parallel;
  const std::int64_t rows = config.batch.micro_batch_size * config.data.sequence_length;
  const std::int64_t element = static_cast<std::int64_t>(size_of(shape.dtype));
  const std::int64_t activations = rows * shape.hidden;
  // An all-reduce, or under sequence parallelism a gather or scatter, of the activations.
  const std::int64_t sum = sequence_parallel ? scatter_sent(activations * element, t)
                                             : all_reduce_sent(activations, element, t, rank);
  const bool full = config.activation_checkpointing.granularity == "full";
  const bool selective = config.activation_checkpointing.granularity == "selective";
  std::int64_t micro_batch = 0;
  for (const Chunk& chunk : share.chunks) {
    const auto layers = config.pipeline.layer_split[static_cast<std::size_t>(chunk.stage)];
    // Two sums forward, two backward; each has its gather on the other side of the layer.
    // Recomputed layers go forward twice; "selective" gathers two layers' inputs again.
    micro_batch += layers * sum * (sequence_parallel ? 2 : 1) * (full ? 6 : 4);
    if (selective && sequence_parallel) micro_batch += layers * sum * 2;
    if (chunk.stage == 0) micro_batch += sum * (sequence_parallel ? 2 : 1);
    if (chunk.stage == stages - 1) {
      micro_batch += sum * (sequence_parallel ? 2 : 1);
      const std::int64_t part = logit_rows(shape, rows, shape.padded_vocabulary / t);
      for (std::int64_t row = 0; row < rows; row += part) {
        const std::int64_t count = std::min(part, rows - row);
        micro_batch += all_reduce_sent(count, 4, t, rank) + all_reduce_sent(3 * count, 4, t, rank);
      }
    }
  }
  return micro_batch * config.num_microbatches();
}

// What a data-parallel rank holds and sends of its buckets (parallel/data/).
struct DataSharing {
  explicit DataSharing(const Config& config)
      : ranks(static_cast<int>(config.parallel.data_parallel_size)),
        stage(static_cast<int>(config.zero_optimization.stage)),
        each(reduces_each_micro_batch(config)),
        microbatches(config.num_microbatches()) {}

  // Elements that the rank updates.
  std::int64_t part(const BucketLayout& bucket) const {
    return stage >= 1 ? bucket.shard(ranks) : bucket.elements;
  }
  bool gathered(const BucketLayout& bucket) const {
    return stage == 3 && !bucket.persistent && ranks > 1;
  }
  // Elements of weights that are kept.
  std::int64_t weights(const BucketLayout& bucket) const {
    return gathered(bucket) ? bucket.shard(ranks) : bucket.elements;
  }
  // Elements that are reduced, by an all-reduce or a reduce-scatter, for one update.
  std::int64_t reduced(const BucketLayout& bucket) const {
    return bucket.elements * (each ? microbatches * bucket.uses() : 1);
  }

  int ranks, stage;
  bool each;
  std::int64_t microbatches;
};

// fp32 values that data rank `data` keeps for its updates.
std::int64_t optimizer_elements(const DataSharing& sharing, const Share& share,
                                const UpdateRule& rule, bool mixed, bool keeps, int data) {
  std::int64_t masters = 0, state = 0;
  for (const BucketLayout& bucket : share.buckets) {
    const std::int64_t count = sharing.part(bucket);
    masters += count;
    for (const UpdateRange& range :
         update_ranges(bucket, sharing.stage >= 1 ? data * count : 0, count, data, sharing.ranks)) {
      for (const std::int64_t size : rule.state_sizes(range)) state += size;
    }
  }
  return state + (mixed ? masters : 0) + (keeps ? masters + state : 0);
}

// Elements of weights that ZeRO stage 3 gathers in a step: neighbours in a list share a bucket.
std::int64_t gathered_elements(const Config& config, const DataSharing& sharing,
                               const Schedule& schedule, int pipeline, const Share& share) {
  std::map<const Parameter*, std::size_t> bucket_of;
  for (std::size_t i = 0; i < share.buckets.size(); ++i) {
    for (const BucketEntry& entry : share.buckets[i].entries) bucket_of[entry.parameter.get()] = i;
  }
  std::map<int, std::map<Kind, std::vector<std::set<std::size_t>>>> visits;  // by stage
  for (const Chunk& chunk : share.chunks) {
    const bool last = chunk.stage + 1 == schedule.total_stages();
    const ChunkVisits list =
        chunk_visits(chunk, module_units(chunk, last, recompute_layers(config)));
    for (const Kind kind :
         {Kind::forward, Kind::backward, Kind::backward_input, Kind::backward_weight}) {
      auto& of_kind = visits[chunk.stage][kind];
      for (const auto& parameters : list.of(kind)) {
        auto& buckets = of_kind.emplace_back();
        for (const auto& parameter : parameters) {
          const std::size_t bucket = bucket_of.at(parameter.get());
          if (sharing.gathered(share.buckets[bucket])) buckets.insert(bucket);
        }
      }
    }
  }
  std::int64_t elements = 0;
  const std::set<std::size_t> none;
  const std::set<std::size_t>* before = &none;
  for (const Action& action : schedule.ranks[static_cast<std::size_t>(pipeline)]) {
    const auto& list = visits.at(action.stage).at(action.kind);
    if (list.empty()) before = &none;
    for (const auto& visit : list) {
      for (const std::size_t bucket : visit) {
        if (!before->contains(bucket)) elements += share.buckets[bucket].elements;
      }
      before = &visit;
    }
  }
  return elements;
}

// Bytes sent over the tensor group for partial gradients, of the part that data rank `data` holds.
std::int64_t partial_sent(const DataSharing& sharing, const Share& share, std::int64_t element,
                          int tensor_ranks, int tensor, int data) {
  std::int64_t sent = 0;
  if (tensor_ranks == 1) return sent;
  for (const BucketLayout& bucket : share.buckets) {
    const std::int64_t count = sharing.part(bucket);
    for (const ParameterSegment& segment :
         segments(bucket, sharing.stage >= 1 ? data * count : 0, count)) {
      if (!segment.parameter->spec().gradient_partial_over_tensor) continue;
      sent += all_reduce_sent(segment.count, element, tensor_ranks, tensor);
    }
  }
  return sent;
}

// Bytes sent for the all-reduces of fp64 values within an update.
std::int64_t update_sums_sent(const std::vector<std::int64_t>& sums, int ranks, int rank) {
  std::int64_t sent = 0;
  for (const std::int64_t count : sums)
    sent += ranks > 1 ? all_reduce_sent(count, 8, ranks, rank) : 0;
  return sent;
}

std::int64_t pipeline_sent(const Config& config, const TransformerShape& shape,
                           const Schedule& schedule, int pipeline) {
  std::int64_t rows = config.batch.micro_batch_size * config.data.sequence_length;
  if (config.parallel.sequence_parallel) rows /= config.parallel.tensor_model_parallel_size;
  const std::int64_t message =
      rows * shape.hidden * static_cast<std::int64_t>(size_of(shape.dtype));
  std::int64_t messages = 0;
  for (const int stage : schedule.placement[static_cast<std::size_t>(pipeline)]) {
    const auto elsewhere = [&](int other) {
      return other >= 0 && other < schedule.total_stages() &&
             schedule.rank_of_stage(other) != pipeline;
    };
    messages += elsewhere(stage + 1) + elsewhere(stage - 1);  // activation on, gradient back
  }
  return messages * message * schedule.microbatches;
}

}  // namespace

double flops_per_step(const Config& config, const Architecture& architecture) {
  const ModelConfig& m = config.model;
  const auto h = static_cast<double>(m.hidden_size), f = static_cast<double>(m.ffn_hidden_size);
  const double kv =
      h * static_cast<double>(m.num_query_groups) / static_cast<double>(m.num_attention_heads);
  const double mlp = architecture.shape(config).swiglu ? 3 : 2;  // products of h × f
  const double weights =
      static_cast<double>(m.num_layers) * (2 * h * h + 2 * h * kv + mlp * h * f) +
      h * static_cast<double>(m.vocab_size);
  const auto s = static_cast<double>(config.data.sequence_length);
  const double attention = 12 * s * h * static_cast<double>(m.num_layers);
  return static_cast<double>(config.batch.global_batch_size) * s * (6 * weights + attention);
}

Plan make_plan(const Config& config, const Architecture& architecture) {
  return make_plan(config, architecture, schedule_of(config));
}

Plan make_plan(const Config& config, const Architecture& architecture, const Schedule& schedule) {
  const TransformerShape shape = architecture.shape(config);
  const int d = static_cast<int>(config.parallel.data_parallel_size);
  const int t = static_cast<int>(config.parallel.tensor_model_parallel_size);
  const int p = static_cast<int>(config.parallel.pipeline_model_parallel_size);
  const RankGrid grid = rank_grid_of(config);
  const DataSharing sharing(config);
  const bool mixed = shape.dtype != DType::f32;
  const auto rule = make_update_rule(config.optimizer);
  // Master weights and state once more where an update may be taken back.
  const bool keeps = overlaps_next_iteration(schedule);

  Plan plan{.world_size = config.world_size(),
            .flops_per_step = flops_per_step(config, architecture)};
  plan.bubble_ratio = simulate(schedule, stage_times(schedule, ShareTimes{})).bubble.ratio;
  const std::int64_t updates =
      schedule.updates == Updates::each_microbatch ? config.num_microbatches() : 1;
  // Older versions of the weights that are kept beside the live ones.
  const auto stashes = [&](int pipeline) -> std::int64_t {
    if (schedule.updates == Updates::each_microbatch) return p - 1 - pipeline;
    return schedule.asynchronous() ? 1 : 0;
  };
  plan.layer_split = config.pipeline.layer_split;
  const StageTimes times = stage_flops(config);
  plan.bubble_ratio_of_split = simulate(schedule, times).bubble.ratio;
  double all = 0, most = 0;
  for (const auto& held : schedule.placement) {
    double rank = 0;
    for (const int stage : held) {
      const auto i = static_cast<std::size_t>(stage);
      rank += times.forward[i] + times.backward_input[i] + times.backward_weight[i];
    }
    all += rank;
    most = std::max(most, rank);
  }
  plan.imbalance = most * p / all - 1;
  const std::vector<MemoryPlan> memory = plan_memory(config, architecture, schedule);
  for (int pipeline = 0; pipeline < p; ++pipeline) {
    for (int tensor = 0; tensor < t; ++tensor) {
      const Share share = share_of(architecture, shape, config, schedule, tensor, pipeline);
      PlanRank base{.tensor = tensor, .pipeline = pipeline};
      for (const Chunk& chunk : share.chunks) {
        base.layers += config.pipeline.layer_split[static_cast<std::size_t>(chunk.stage)];
      }
      for (const auto& parameter : share.parameters) {
        const ParameterSpec& spec = parameter->spec();
        base.parameters += spec.shard.numel();
        if (tensor == 0 && !spec.replica) plan.parameters += spec.shard.global.numel();
      }
      base.bytes_sent["pipeline"] = pipeline_sent(config, shape, schedule, pipeline);
      const auto element = static_cast<std::int64_t>(size_of(shape.dtype));
      const auto gradient =
          static_cast<std::int64_t>(size_of(dtype_of(config.precision.grad_accum_dtype)));
      const bool first = share.chunks.front().stage == 0;
      std::int64_t sent = 0;
      for (const BucketLayout& bucket : share.buckets) {
        base.bytes["parameter"] +=
            (sharing.weights(bucket) + bucket.elements * stashes(pipeline)) * element;
        if (bucket.tied() && bucket.uses() == 1 && p > 1) {
          const std::int64_t count =
              sharing.each ? sharing.part(bucket) : bucket.entries.front().numel;
          base.bytes_sent["embedding"] += all_reduce_sent(count, gradient, 2, first ? 0 : 1);
        }
        if (d == 1) continue;
        // Shards are equal, so an all-reduce sends what a reduce-scatter and a gather do.
        sent += scatter_sent(sharing.reduced(bucket) * gradient, d) * (sharing.stage == 0 ? 2 : 1);
        if (sharing.stage >= 1 && !sharing.gathered(bucket)) {
          sent += scatter_sent(bucket.elements * element, d);
        }
      }
      base.bytes_sent["embedding"] += 0;
      base.bytes_sent["data"] =
          sent * updates +
          scatter_sent(gathered_elements(config, sharing, schedule, pipeline, share) * element, d);
      const std::int64_t activations =
          tensor_sent(config, shape, share, schedule.total_stages(), tensor);
      const int world = static_cast<int>(config.world_size());
      const UpdateSums sums = rule->sums(share.parameters);
      for (int data = 0; data < d; ++data) {
        PlanRank rank = base;
        rank.data = data;
        rank.rank = grid.rank({.tensor = tensor, .data = data, .pipeline = pipeline});
        rank.bytes_sent["tensor"] =
            activations + (partial_sent(sharing, share, gradient, t, tensor, data) +
                           update_sums_sent(sums.tensor, t, tensor)) *
                              updates;
        rank.bytes_sent["data"] += update_sums_sent(sums.data, d, data) * updates;
        // Data ranks differ in how many of their elements are padding.
        const MemoryPlan& planned = memory[static_cast<std::size_t>(pipeline)];
        rank.bytes["optimizer"] = optimizer_elements(sharing, share, *rule, mixed, keeps, data) * 4;
        for (const Category c : {Category::gradient, Category::activation, Category::communication,
                                 Category::workspace}) {
          rank.bytes[std::string(name_of(c))] = planned.peak[static_cast<std::size_t>(c)];
        }
        rank.bytes["library"] = library_bytes(config);
        rank.peak_bytes = planned.peak_total + library_bytes(config) + rank.bytes["optimizer"] -
                          planned.peak[static_cast<std::size_t>(Category::optimizer)];
        rank.bytes_sent["world"] = world == 1 ? 0
                                              : all_reduce_sent(StepCheck::elements(d), 8, world,
                                                                static_cast<int>(rank.rank));
        plan.ranks.push_back(std::move(rank));
      }
    }
  }
  std::sort(plan.ranks.begin(), plan.ranks.end(),
            [](const PlanRank& a, const PlanRank& b) { return a.rank < b.rank; });
  return plan;
}

namespace {

bool alike(const PlanRank& a, const PlanRank& b) {
  return a.pipeline == b.pipeline && a.layers == b.layers && a.parameters == b.parameters &&
         a.bytes == b.bytes && a.peak_bytes == b.peak_bytes && a.bytes_sent == b.bytes_sent;
}

std::vector<PlanRank> folded(const std::vector<PlanRank>& ranks) {
  std::vector<PlanRank> result;
  std::map<std::int64_t, std::vector<std::size_t>> by_stage;
  for (const PlanRank& rank : ranks) {
    auto& candidates = by_stage[rank.pipeline];
    const auto same = std::find_if(candidates.begin(), candidates.end(),
                                   [&](std::size_t i) { return alike(result[i], rank); });
    if (same != candidates.end()) {
      ++result[*same].count;
    } else {
      candidates.push_back(result.size());
      result.push_back(rank);
    }
  }
  return result;
}

std::string in_words(std::int64_t count) {
  const auto value = static_cast<double>(count);
  return count < 1'000'000'000 ? fmt::format("{:.3f} million", value * 1e-6)
                               : fmt::format("{:.3f} billion", value * 1e-9);
}

}  // namespace

std::string plan_json(const Plan& plan) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const PlanRank& rank : folded(plan.ranks)) {
    ranks.push_back({{"rank", rank.rank},
                     {"count", rank.count},
                     {"dp", rank.data},
                     {"tp", rank.tensor},
                     {"pp", rank.pipeline},
                     {"layers", rank.layers},
                     {"parameters", rank.parameters},
                     {"bytes", rank.bytes},
                     {"peak_bytes", rank.peak_bytes},
                     {"bytes_sent", rank.bytes_sent}});
  }
  return nlohmann::ordered_json{{"world_size", plan.world_size},
                                {"parameters", plan.parameters},
                                {"flops_per_step", plan.flops_per_step},
                                {"bubble_ratio", plan.bubble_ratio},
                                {"layer_split", plan.layer_split},
                                {"imbalance", plan.imbalance},
                                {"bubble_ratio_of_split", plan.bubble_ratio_of_split},
                                {"ranks", ranks}}
      .dump(2);
}

std::string plan_text(const Plan& plan) {
  std::string text = fmt::format(
      "{} ranks, {} parameters, {:.4g} TFLOP a step, predicted bubble {:.1f}%\n", plan.world_size,
      in_words(plan.parameters), plan.flops_per_step * 1e-12, 100 * plan.bubble_ratio);
  if (plan.layer_split.size() > 1) {
    text += fmt::format(
        "layers by stage {}: the busiest rank has {:.1f}% more FLOPs than the mean, bubble "
        "{:.1f}%\n",
        fmt::join(plan.layer_split, " "), 100 * plan.imbalance, 100 * plan.bubble_ratio_of_split);
  }
  // Peaks by category in MB; they need not fall together, so their sum is not the peak.
  text += fmt::format("{:>6} {:>5} {:>4} {:>4} {:>4} {:>6} {:>13}", "rank", "count", "dp", "tp",
                      "pp", "layers", "parameters");
  for (const char* name : {"weights", "gradients", "optimizer", "activ.", "commun.", "workspace",
                           "library", "peak MB"}) {
    text += fmt::format(" {:>10}", name);
  }
  text += "  sent a step (MB)\n";
  const auto mb = [](std::int64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  for (const PlanRank& rank : folded(plan.ranks)) {
    text += fmt::format("{:>6} {:>5} {:>4} {:>4} {:>4} {:>6} {:>13}", rank.rank, rank.count,
                        rank.data, rank.tensor, rank.pipeline, rank.layers, rank.parameters);
    for (const char* name : {"parameter", "gradient", "optimizer", "activation", "communication",
                             "workspace", "library"}) {
      text += fmt::format(" {:>10.2f}", mb(rank.bytes.at(name)));
    }
    text += fmt::format(" {:>10.2f} ", mb(rank.peak_bytes));
    for (const auto& [group, bytes] : rank.bytes_sent) {
      if (bytes > 0) text += fmt::format(" {} {:.3g}", group, mb(bytes));
    }
    text += "\n";
  }
  return text;
}

}  // namespace trident

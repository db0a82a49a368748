#include "training/traffic.h"

#include <algorithm>
#include <set>

#include "core/dtype.h"
#include "models/head.h"
#include "training/chunk_runner.h"
#include "training/from_config.h"
#include "training/step_check.h"

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

// Bytes sent over the tensor group by the activations of a step.
std::int64_t tensor_sent(const Config& config, const TransformerShape& shape,
                         const RankShare& share, int stages, int rank) {
  const int t = static_cast<int>(config.parallel.ranks(Group::tensor));
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

// Elements of weights that ZeRO stage 3 gathers in a step: neighbours in a list share a bucket.
std::int64_t gathered_elements(const Config& config, const DataSharing& sharing,
                               const Schedule& schedule, int pipeline, const RankShare& share) {
  if (std::none_of(share.buckets.begin(), share.buckets.end(),
                   [&](const BucketLayout& bucket) { return sharing.gathered(bucket); })) {
    return 0;
  }
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

// Bytes sent over the tensor group for partial gradients, of the part that is held at `place` of
// the shard group.
std::int64_t partial_sent(const DataSharing& sharing, const RankShare& share, std::int64_t element,
                          int tensor_ranks, int tensor, int place) {
  std::int64_t sent = 0;
  if (tensor_ranks == 1) return sent;
  for (const BucketLayout& bucket : share.buckets) {
    for (const ParameterSegment& segment :
         segments(bucket, sharing.begin(bucket, place), sharing.updated(bucket))) {
      if (!segment.parameter->spec().placement.partial_over(Group::tensor)) continue;
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
  if (config.parallel.sequence_parallel) rows /= config.parallel.ranks(Group::tensor);
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

// Bytes sent to sum the gradients of a table that lies on the first and on the last stage, too.
std::int64_t embedding_sent(const DataSharing& sharing, const RankShare& share,
                            std::int64_t element, int pipeline_ranks) {
  std::int64_t sent = 0;
  const bool first = share.chunks.front().stage == 0;
  for (const BucketLayout& bucket : share.buckets) {
    if (!bucket.tied() || bucket.uses() != 1 || pipeline_ranks == 1) continue;
    const std::int64_t count =
        sharing.each ? sharing.updated(bucket) : bucket.entries.front().numel;
    sent += all_reduce_sent(count, element, 2, first ? 0 : 1);
  }
  return sent;
}

// Bytes sent over the data group for one update: gradients reduced, weights gathered after it.
std::int64_t update_sent(const DataSharing& sharing, const RankShare& share, std::int64_t gradient,
                         std::int64_t weight) {
  std::int64_t sent = 0;
  if (sharing.ranks == 1) return sent;
  for (const BucketLayout& bucket : share.buckets) {
    // Shards are equal, so an all-reduce sends what a reduce-scatter and a gather do.
    sent += scatter_sent(sharing.reduced(bucket) * gradient, sharing.ranks) *
            (sharing.stage == 0 ? 2 : 1);
    if (sharing.stage >= 1 && !sharing.gathered(bucket)) {
      sent += scatter_sent(bucket.elements * weight, sharing.ranks);
    }
  }
  return sent;
}

// Bytes sent among the replicas of a shard for one update, by the one at `place`.
std::int64_t replicas_sent(const DataSharing& sharing, const RankShare& share, std::int64_t element,
                           int place) {
  std::int64_t sent = 0;
  if (sharing.replicas == 1) return sent;
  for (const BucketLayout& bucket : share.buckets) {
    const std::int64_t rounds =
        sharing.reduced(bucket) / std::max<std::int64_t>(1, bucket.elements);
    sent += rounds * all_reduce_sent(sharing.updated(bucket), element, sharing.replicas, place);
  }
  return sent;
}

}  // namespace

StepTraffic::StepTraffic(const Config& config, const TransformerShape& shape,
                         const Schedule& schedule, const RankShare& share, const UpdateRule& rule,
                         int tensor, int pipeline)
    : share_(share),
      sharing_(config),
      sums_(rule.sums(share.parameters)),
      tensor_(tensor),
      tensor_ranks_(static_cast<int>(config.parallel.ranks(Group::tensor))),
      world_(static_cast<int>(config.world_size())),
      partial_(std::any_of(share.parameters.begin(), share.parameters.end(),
                           [](const auto& parameter) {
                             return parameter->spec().placement.partial_over(Group::tensor);
                           })),
      updates_(schedule.updates == Updates::each_microbatch ? config.num_microbatches() : 1),
      gradient_(static_cast<std::int64_t>(size_of(dtype_of(config.precision.grad_accum_dtype)))),
      losses_(static_cast<int>(config.parallel.ranks(Group::loss))) {
  const auto weight = static_cast<std::int64_t>(size_of(shape.dtype));
  alike_["pipeline"] = pipeline_sent(config, shape, schedule, pipeline);
  alike_["embedding"] = embedding_sent(sharing_, share, gradient_, schedule.stages);
  alike_["tensor"] = tensor_sent(config, shape, share, schedule.total_stages(), tensor);
  alike_["data"] =
      update_sent(sharing_, share, gradient_, weight) * updates_ +
      scatter_sent(gathered_elements(config, sharing_, schedule, pipeline, share) * weight,
                   sharing_.ranks);
}

StepTraffic::Own StepTraffic::own(int shard, int replica, int rank) const {
  Own own;
  if (partial_)
    own.tensor = partial_sent(sharing_, share_, gradient_, tensor_ranks_, tensor_, shard);
  own.tensor = updates_ * (own.tensor + update_sums_sent(sums_.tensor, tensor_ranks_, tensor_));
  own.data = updates_ * update_sums_sent(sums_.data, sharing_.ranks, shard);
  own.replicas = updates_ * replicas_sent(sharing_, share_, gradient_, replica);
  if (world_ > 1) own.world = all_reduce_sent(StepCheck::elements(losses_), 8, world_, rank);
  return own;
}

std::map<std::string, std::int64_t> StepTraffic::of(const Own& own) const {
  auto sent = alike_;
  sent["tensor"] += own.tensor;
  sent["data"] += own.data;
  if (sharing_.replicas > 1) sent["replicas"] = own.replicas;
  sent["world"] = own.world;
  return sent;
}

}  // namespace trident

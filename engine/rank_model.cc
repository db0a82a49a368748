#include "engine/rank_model.h"

#include <algorithm>

#include "engine/setup/from_config.h"

namespace trident {

RankModel::RankModel(Context& context, const Config& config, const Architecture& architecture,
                     const Schedule& schedule, const Topology& topology)
    : context_(context),
      config_(config),
      architecture_(architecture),
      topology_(topology),
      shape_(architecture.shape(config)),
      statistics_(architecture.statistics(shape_),
                  [&architecture, shape = shape_](double tokens, StepStatistics& all) {
                    architecture.derive_statistics(shape, tokens, all);
                  }),
      placement_(schedule.placement),
      total_stages_(schedule.total_stages()),
      last_stage_rank_(schedule.rank_of_stage(total_stages_ - 1)) {
  std::vector<ProcessGroup> groups{topology.embedding};
  for (const auto& [group, members] : topology.groups) {
    if (group != Group::pipeline) groups.push_back(members);  // pipeline messages use links
  }
  topology.world.connect(context, groups);
  chunks_ =
      build_chunks(architecture, shape_,
                   parallel_context_of(config.parallel, config.activation_checkpointing, topology),
                   config.pipeline.layer_split,
                   placement_[static_cast<std::size_t>(topology.place(Group::pipeline))]);
  const ZeroConfig& zero = config.zero_optimization;
  buckets_ = std::make_unique<ParameterBuckets>(
      context, backward_groups(chunks_),
      BucketOptions{.dtype = shape_.dtype,
                    .zero_stage = static_cast<int>(zero.stage),
                    .limits = bucket_limits(config.zero_optimization, config.parallel)},
      topology, buffers_of(chunks_));
  gathering_ = std::make_unique<WeightGathering>(*buckets_, zero.overlap_comm,
                                                 zero.stage3_prefetch_bucket_size);
}

void RankModel::initialise() {
  for (const Bucket& bucket : buckets_->buckets()) {
    for (const BucketEntry& entry : bucket.layout.entries) {
      // Row by row, to avoid a complete fp32 copy of a table.
      const ParameterSpec& spec = entry.parameter->spec();
      const Shape local = spec.placement.local();
      const std::int64_t rows = local.dim(0),
                         columns = local.numel() / std::max<std::int64_t>(1, rows);
      const std::int64_t step =
          std::max<std::int64_t>(1, 250'000 / std::max<std::int64_t>(1, columns));
      for (std::int64_t row = 0; row < rows; row += step) {
        const std::int64_t count = std::min(step, rows - row);
        const Tensor values =
            context_.empty(local.rank() == 1 ? Shape{count} : Shape{count, columns}, DType::f32,
                           Category::workspace);
        trident::initialise(context_, spec, shape_.seed, values, row);
        buckets_->set(context_, *entry.parameter, values, row * columns);
      }
    }
  }
}

double RankModel::batch_tokens() const {
  return static_cast<double>(config_.batch.global_batch_size) *
         static_cast<double>(config_.data.sequence_length);
}

std::unique_ptr<ModelStageRunner> RankModel::make_runner(int first_channel) {
  const auto parallel =
      parallel_context_of(config_.parallel, config_.activation_checkpointing, topology_);
  const std::int64_t rows =
      config_.batch.micro_batch_size * parallel.own_positions(config_.data.sequence_length);
  return std::make_unique<ModelStageRunner>(
      context_, chunks_, topology_.of(Group::pipeline), placement_, *gathering_, statistics_,
      ModelStageRunner::Shape{
          .activations = parallel.activations({rows, shape_.hidden}),
          .dtype = shape_.dtype,
          .recompute_layers = recompute_layers(config_.activation_checkpointing)},
      first_channel);
}

bool RankModel::reads_tokens() const {
  return std::ranges::any_of(chunks_, [&](const Chunk& chunk) {
    return chunk.stage == 0 || chunk.stage + 1 == total_stages_;
  });
}

namespace {

// Where the document of each token begins in its sample.
std::vector<std::int64_t> begins_of(const HostMicroBatch& host, std::int64_t tokens) {
  if (!host.document_begins.empty()) return host.document_begins;
  return std::vector<std::int64_t>(static_cast<std::size_t>(tokens));
}

// The place of each token in its document or, with `complete`, in its sample.
std::vector<std::int32_t> positions_of(const HostMicroBatch& host, std::int64_t sequence,
                                       std::int64_t tokens, bool complete) {
  std::vector<std::int32_t> positions;
  for (const std::int64_t begin : begins_of(host, tokens)) {
    positions.push_back(
        static_cast<std::int32_t>(std::ssize(positions) % sequence - (complete ? 0 : begin)));
  }
  return positions;
}

// Of the elements of complete samples those of a rank's own positions.
template <class T>
std::vector<T> own_elements(const std::vector<T>& all, const SequencePieces& pieces, int rank) {
  if (pieces.ranks() == 1) return all;
  std::vector<T> own;
  for (auto sample = all.begin(); sample != all.end(); sample += pieces.positions()) {
    for (const SequencePiece& piece : pieces.of(rank)) {
      own.insert(own.end(), sample + piece.begin, sample + piece.end());
    }
  }
  return own;
}

// The labels `distance` positions further on in each sample; behind its last one -1 or, with `own`,
// the position's own label.
std::vector<std::int32_t> labels_ahead(const std::vector<std::int32_t>& labels,
                                       std::int64_t sequence, std::int64_t distance, bool own) {
  std::vector<std::int32_t> ahead;
  for (std::int64_t i = 0; i < std::ssize(labels); ++i) {
    const bool known = i % sequence + distance < sequence;
    ahead.push_back(known ? labels[static_cast<std::size_t>(i + distance)]
                    : own ? labels[static_cast<std::size_t>(i)]
                          : -1);
  }
  return ahead;
}

}  // namespace

std::vector<MicroBatch> RankModel::upload(const std::vector<HostMicroBatch>& batches,
                                          bool training) const {
  bool first = false, last = false;
  for (const Chunk& chunk : chunks_) {
    first = first || chunk.stage == 0;
    last = last || chunk.stage + 1 == total_stages_;
  }
  std::vector<MicroBatch> result;
  for (const HostMicroBatch& host : batches) {
    // A planning device has no tokens, only their number.
    const std::int64_t samples = context_.is_planning()
                                     ? config_.batch.micro_batch_size
                                     : static_cast<std::int64_t>(host.sample_ids.size());
    const std::int64_t tokens = host.tokens.empty() ? samples * config_.data.sequence_length
                                                    : static_cast<std::int64_t>(host.tokens.size());
    const auto uploaded = [&]<class T>(std::int64_t count, const std::vector<T>& values) {
      if (context_.is_planning())
        return context_.empty({count}, DTypeOf<T>::value, Category::activation);
      return context_.from_host<T>({count}, values, Category::activation);
    };
    const SequencePieces pieces(tokens / samples, topology_.size(Group::context));
    const int rank = topology_.place(Group::context);
    const std::int64_t own = samples * pieces.count(rank);
    const auto uploaded_rows = [&]<class T>(const std::vector<T>& values) {
      return uploaded(own, own_elements(values, pieces, rank));
    };
    MicroBatch batch{.batch = samples,
                     .sequence = pieces.count(rank),
                     .complete = pieces.positions(),
                     .training = training,
                     .version = stash_ ? stash_->live() : 0};
    batch.samples = uploaded(samples, host.sample_ids);
    if (first) batch.tokens = uploaded_rows(host.tokens);
    if (last) batch.labels = uploaded_rows(host.labels);
    for (int depth = 1; last && training && pieces.ranks() > 1; ++depth) {
      if (depth > config_.model.mtp_num_layers) break;
      const auto ahead = [&](int distance, bool own_label) {
        return uploaded_rows(labels_ahead(host.labels, pieces.positions(), distance, own_label));
      };
      batch.further.push_back({ahead(depth - 1, true), ahead(depth, false)});
    }
    const bool plans = context_.is_planning();
    const auto upload_positions = [&](bool complete) {
      return uploaded_rows(plans ? std::vector<std::int32_t>()
                                 : positions_of(host, pieces.positions(), tokens, complete));
    };
    if (config_.data.reset_attention_mask) {
      batch.document_begins =
          uploaded(tokens, plans ? std::vector<std::int64_t>() : begins_of(host, tokens))
              .view({batch.batch, batch.complete});
    }
    if (pieces.ranks() > 1) batch.places = upload_positions(true);
    batch.positions = config_.data.reset_position_ids ? upload_positions(false) : batch.places;
    result.push_back(std::move(batch));
  }
  return result;
}

WeightStash& RankModel::keep_versions(std::int64_t batch) {
  stash_ = std::make_unique<WeightStash>(*buckets_, batch);
  return *stash_;
}

}  // namespace trident

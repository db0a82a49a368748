#include "training/plan/rank_share.h"

#include "training/setup/from_config.h"

namespace trident {

RankShare rank_share(const Config& config, const Architecture& architecture,
                     const Schedule& schedule, int tensor, int pipeline) {
  RankShare share;
  share.chunks = build_chunks(
      architecture, architecture.shape(config),
      TensorParallel{.rank = tensor,
                     .size = static_cast<int>(config.parallel.ranks(Group::tensor)),
                     .sequence_parallel = config.parallel.sequence_parallel},
      config.pipeline.layer_split, schedule.placement[static_cast<std::size_t>(pipeline)]);
  share.parameters = unique_parameters(share.chunks);
  share.buckets = layout_buckets(backward_groups(share.chunks), bucket_limits(config));
  return share;
}

}  // namespace trident

#include "datasets/synthetic_batches.h"

#include "core/rng.h"

namespace trident {

std::vector<HostMicroBatch> synthetic_batches(const Config& config, std::uint64_t seed) {
  std::vector<HostMicroBatch> list(static_cast<std::size_t>(config.num_microbatches()));
  std::uint32_t index = 0;
  for (HostMicroBatch& batch : list) {
    const auto tokens = config.batch.micro_batch_size * config.data.sequence_length;
    for (std::int64_t i = 0; i <= tokens; ++i) {
      const auto word = philox({index++, 0, 0, 0}, {static_cast<std::uint32_t>(seed), 1})[0];
      const auto token =
          static_cast<std::int32_t>(word % static_cast<std::uint32_t>(config.model.vocab_size));
      if (i < tokens) batch.tokens.push_back(token);
      if (i > 0) batch.labels.push_back(token);
    }
    for (std::int64_t i = 0; i < config.batch.micro_batch_size; ++i) {
      batch.sample_ids.push_back(static_cast<std::int64_t>(index) + i);
    }
  }
  return list;
}

}  // namespace trident

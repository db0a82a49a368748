#include "run/loop/trainer.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/exchanged_texts.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "run/loop/training_run.h"

namespace trident {

namespace {

// Throws RequestError if ranks begin with different checkpoints: one of them may have failed to
// read the next one.
void require_same_start(const StartingPoint& start, Context& context, const ProcessGroup& group) {
  const FoundCheckpoint& first = start.checkpoints.front();
  const std::string own =
      fmt::format("{} (of run {}, {})", first.path, first.manifest->run_id, first.manifest->root);
  const std::vector<std::string> all = exchanged_texts(context, group, own);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw RequestError(fmt::format(
        "ranks would resume from different checkpoints: rank 0 from {}, rank {} from {}", all[0],
        rank, all[rank]));
  }
}

}  // namespace

TrainingSummary train_rank(const TrainingInputs& inputs, Transport& transport, Device& device,
                           const TrainerHooks& hooks) {
  Context context(
      device, static_cast<int>(inputs.config.runtime.threads_per_rank),
      kernel_options(inputs.config.training, inputs.config.precision, inputs.config.runtime));
  TrainingInputs own = inputs;     // replaced if the first checkpoint is damaged
  std::optional<TrainingRun> run;  // destroyed after the other ranks know of an error
  return end_all_on_error(transport, [&] {
    for (;;) {
      run.emplace(own, transport, context, hooks);
      try {
        return run->run();
      } catch (const DamagedCheckpoint& error) {
        run.reset();
        own = with_next_checkpoint(std::move(own), error.what());
        require_same_start(own.start, context, transport.world().without_timeout("starts"));
      }
    }
  });
}

TrainingSummary train_local(const TrainingInputs& inputs, const Devices& devices,
                            const TrainerHooks& hooks) {
  const Config& config = inputs.config;
  const TransportKind& kind = transport_of(config);
  if (kind.run_threads == nullptr) {
    throw RequestError(
        fmt::format("config: /runtime/transport: \"{}\" runs no ranks in one process", kind.name));
  }
  TrainingSummary summary;
  kind.run_threads(static_cast<int>(config.world_size()), transport_options(config),
                   [&](Transport& transport) {
                     const int rank = transport.world().rank();
                     TrainingSummary mine = train_rank(inputs, transport, devices.of(rank), hooks);
                     if (rank == 0) summary = std::move(mine);
                   });
  return summary;
}

TrainingSummary train_local(const TrainingInputs& inputs, const TrainerHooks& hooks) {
  return train_local(inputs, Devices(inputs.config), hooks);
}

}  // namespace trident

#include "training/run/trainer.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/error.h"
#include "training/run/training_run.h"
#include "training/setup/from_config.h"
#include "training/setup/kinds.h"

namespace trident {

TrainingSummary train_rank(const TrainingInputs& inputs, Transport& transport, Device& device,
                           const TrainerHooks& hooks) {
  Context context(device, static_cast<int>(inputs.config.runtime.threads_per_rank),
                  kernel_options(inputs.config));
  TrainingInputs own = inputs;
  std::optional<TrainingRun> run;  // goes after the others know of an error
  return end_all_on_error(transport, [&] {
    for (;;) {
      run.emplace(own, transport, context, hooks);
      try {
        return run->run();
      } catch (const DamagedCheckpoint& error) {
        run.reset();
        fall_back(own.start, own.config, error.what());
        begin_at_start(own);
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

#include "run/loop/run_data.h"

#include "base/error.h"
#include "engine/setup/from_config.h"

namespace trident {
namespace {

BatchShape shape_for(const TrainingInputs& inputs, const Topology& topology,
                     const RankModel& model) {
  BatchShape shape = batch_shape(inputs.config.batch, topology);
  shape.tokens = model.reads_tokens();
  return shape;
}

// A resumed run takes the sample after the last one, whatever its batch sizes are now.
BatchShape training_shape(const TrainingInputs& inputs, const Topology& topology,
                          const RankModel& model) {
  BatchShape shape = shape_for(inputs, topology, model);
  shape.global_batch_size = inputs.begin.batches;
  return shape;
}

// Turns a RequestError into an Error: a bad token is found when it is read, and the run has started
// by then.
template <class Read>
std::vector<HostMicroBatch> while_running(const ProcessGroup& world, const Read& read) {
  const FileWork reading = world.file_work();
  try {
    return read();
  } catch (const RequestError& error) {
    throw Error(error.what());
  }
}

}  // namespace

RunData::RunData(const TrainingInputs& inputs, const ProcessGroup& world, const Topology& topology,
                 const RankModel& model)
    : inputs_(inputs),
      world_(world),
      train_(inputs.datasets.train, training_shape(inputs, topology, model)),
      ahead_([this](std::int64_t k, std::int64_t count) { return read_training(k, count); }) {
  for (const auto& [name, dataset] : inputs.datasets.validation) {
    validation_.emplace_back(name, BatchSampler(dataset, shape_for(inputs, topology, model)));
  }
}

std::vector<HostMicroBatch> RunData::training(std::int64_t k, std::int64_t more,
                                              std::int64_t more_next) {
  return while_running(world_, [&] {
    const bool last = k + 1 >= inputs_.config.training.train_iters;
    return ahead_.take(k, train_.micro_batches(k) + more,
                       last ? 0 : train_.micro_batches(k + 1) + more_next);
  });
}

std::vector<HostMicroBatch> RunData::read_training(std::int64_t k, std::int64_t count) {
  // Only an asynchronous run reads micro-batches of later iterations here, and its batch size is
  // constant.
  const std::int64_t own = train_.micro_batches(k);
  std::vector<HostMicroBatch> list(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    train_.fill(k + i / own, i % own, list[static_cast<std::size_t>(i)]);
  }
  return list;
}

std::vector<HostMicroBatch> RunData::validation(std::size_t set, std::int64_t batch) {
  return while_running(world_, [&] {
    BatchSampler& sampler = validation_[set].second;
    std::vector<HostMicroBatch> list(static_cast<std::size_t>(sampler.micro_batches(batch)));
    for (std::size_t i = 0; i < list.size(); ++i) {
      sampler.fill(batch, static_cast<std::int64_t>(i), list[i]);
    }
    return list;
  });
}

}  // namespace trident

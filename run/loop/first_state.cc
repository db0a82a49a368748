#include "run/loop/first_state.h"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <string>

#include "base/error.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/exchanged_texts.h"
#include "checkpoint/gather_from_nodes.h"
#include "checkpoint/restore.h"
#include "formats/hugging_face/hugging_face.h"

namespace trident {
namespace {

void restore_checkpoint(const TrainingInputs& inputs, Stepper& stepper, const ProcessGroup& files,
                        FirstState& first) {
  Context& context = stepper.context();
  const FoundCheckpoint& from = inputs.start.checkpoints.front();
  std::string mismatch, damage, failure;
  const ClockReading begin = read_clock();
  const FileWork reading = stepper.topology().world.file_work();
  const TakenParts& taken = inputs.start.taken;
  std::unique_ptr<GatheredParts> gathered;  // must live until all ranks have read
  const std::unique_ptr<Device> host = make_cpu_device();
  try {
    State state = stepper.state();
    if (taken.all()) state.numbers.push_back({"skipped", &first.skipped});
    if (from.on_nodes != nullptr) {
      Context host_context(*host, 1);
      gathered = std::make_unique<GatheredParts>(host_context, files, *inputs.files, *from.manifest,
                                                 *from.on_nodes,
                                                 needed_files(state, *from.manifest, taken));
    }
    CheckpointReader reader =
        gathered ? CheckpointReader(from.path, *from.manifest,
                                    [&](const std::string& file) { return gathered->path(file); })
                 : CheckpointReader(from.path, *from.manifest);
    restore_state(context, state, reader, taken);
  } catch (const CommunicationError&) {
    throw;
  } catch (const MismatchedState& error) {
    mismatch = error.what();
  } catch (const RequestError& error) {
    damage = error.what();
  } catch (const std::exception& error) {  // temporary: an older checkpoint would not help
    failure = error.what();
  }
  for (std::string* one : {&mismatch, &failure, &damage}) {
    *one = agreed_failure(context, files, *one);
  }
  if (!mismatch.empty()) throw RequestError(mismatch);
  if (!failure.empty()) throw Error(failure);
  if (!damage.empty()) throw DamagedCheckpoint(damage);
  first.reading_seconds = static_cast<double>(read_clock().wall_ns - begin.wall_ns) * 1e-9;
  stepper.restored();
}

// Restores a state that the program that calls the run has kept (resumed_from()).
void restore_given(const TrainingInputs& inputs, Stepper& stepper, FirstState& first) {
  State state = stepper.state();
  std::int64_t iteration = 0;
  state.numbers.push_back({"iteration", &iteration});
  state.numbers.push_back({"skipped", &first.skipped});
  inputs.begin.restore(stepper.context(), state);
  if (iteration != inputs.begin.iteration) {
    throw Error(fmt::format("the state is of iteration {}, but the run begins at iteration {}",
                            iteration, inputs.begin.iteration));
  }
  stepper.restored();
}

}  // namespace

FirstState take_first_state(const TrainingInputs& inputs, const TrainerHooks& hooks,
                            Stepper& stepper, const ProcessGroup& files) {
  RankModel& model = stepper.model();
  FirstState first;
  // Vocabulary entries that the files lack keep these weights.
  if (inputs.config.checkpoint.grow_vocabulary && !inputs.start.own) model.initialise();
  if (inputs.begin.restore) {
    restore_given(inputs, stepper, first);
  } else if (!inputs.start.checkpoints.empty()) {
    restore_checkpoint(inputs, stepper, files, first);
  } else if (inputs.start.weights.empty()) {
    model.initialise();
  } else {
    load_hugging_face(model, inputs.start.weights, hooks.stop);
  }
  return first;
}

}  // namespace trident

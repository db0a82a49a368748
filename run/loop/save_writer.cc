#include "run/loop/save_writer.h"

#include <exception>
#include <filesystem>
#include <utility>

#include "checkpoint/exchanged_texts.h"

namespace trident {
namespace {

std::string path_in(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

SaveWriter::SaveWriter(const TrainingInputs& inputs, const TrainerHooks& hooks, Stepper& stepper,
                       const Nodes& nodes, int rank)
    : inputs_(inputs),
      hooks_(hooks),
      stepper_(stepper),
      contents_(inputs, stepper),
      host_(make_cpu_device()) {
  const LocalCheckpointConfig& local = inputs_.config.checkpoint.local;
  if (local.interval > 0) {
    place_.files = inputs_.files;
    place_.role = node_role(nodes, rank, local.replicas);
  }
}

void SaveWriter::begin(const ProcessGroup& files, RunReporter& reporter, const std::string& run_id,
                       bool saves) {
  // Other ranks wait for rank 0 in the next call.
  if (reporter.leads()) contents_.take_made_by(hooks_.facts);
  begun_ = prepare_saves(inputs_, files, reporter, run_id, saves, place_);
  sequence_ = begun_.sequence;
}

CheckpointSave SaveWriter::next(const CheckpointProgress& progress, const State& state,
                                bool on_nodes) {
  RankModel& model = stepper_.model();
  ++sequence_;
  std::map<std::string, std::string> metadata;
  if (model.stash() != nullptr) metadata["weight_version"] = std::to_string(model.stash()->live());
  const CheckpointConfig& asked = inputs_.config.checkpoint;
  const auto min_slice = static_cast<std::uint64_t>(asked.min_slice);
  return {.iterations = progress.iterations,
          .on_nodes = on_nodes,
          .list = SaveList(model, state, min_slice, metadata,
                           on_nodes ? SaveList::Weights::slices : SaveList::Weights::full),
          .info = contents_.of(progress, state, begun_, sequence_, on_nodes),
          .place = {.files = inputs_.files,
                    .folder = path_in(asked.save, checkpoint_name(progress.iterations)),
                    .saving = saving_path(asked.save, progress.iterations),
                    .max_writers = asked.max_writers,
                    .min_slice = min_slice}};
}

std::string SaveWriter::write(Context& context, const ProcessGroup& group, CheckpointSave& save,
                              const EachPortion& each) {
  save.place.before = [this, &save] {
    if (!hooks_.folders || !hooks_.folders->held) return;
    if (const std::string what = hooks_.folders->held->hold_saves(); !what.empty())
      save.messages.push_back(what);
  };
  const std::string failure =
      save.on_nodes ? write_on_nodes(context, group, save.list, place_, save.info, each)
                    : write_checkpoint(context, group, save.list, save.place, save.info, each);
  if (!failure.empty()) return failure;
  if (save.on_nodes && group.rank() == 0 && !std::exchange(recorded_on_nodes_, true)) {
    try {
      record_on_nodes(*inputs_.files, inputs_.config.checkpoint.save, begun_.run_id, begun_.start);
    } catch (const std::exception& error) {
      save.messages.push_back(std::string("warning: ") + error.what());
    }
  }
  if (save.on_nodes ? place_.role.leads : group.rank() == 0) conclude(save);
  if (save.on_nodes) {  // collect the messages of all nodes
    std::string lines;
    for (const std::string& message : save.messages) lines += message;
    lines = agreed_failure(context, group, lines);
    save.messages.clear();
    if (!lines.empty()) save.messages.push_back(lines);
  }
  return "";
}

void SaveWriter::conclude(CheckpointSave& save) const {
  const CheckpointConfig& asked = inputs_.config.checkpoint;
  try {
    if (save.on_nodes) return keep_on_node(place_, save.iterations);
    inputs_.files->replace(path_in(asked.save, latest_name),
                           checkpoint_name(save.iterations) + "\n");
    const Retention retention{asked.save_total_limit, asked.save_every_keep, asked.keep_best};
    if (retention.limit == 0) return;
    for (const std::int64_t gone : iterations_to_remove(find_checkpoints(asked.save), retention)) {
      remove_checkpoint(*inputs_.files, asked.save, gone);
    }
  } catch (const std::exception& error) {
    save.messages.push_back(std::string("warning: ") + error.what());
  }
}

std::string SaveWriter::leave_nodes(const ProcessGroup& group) {
  std::string problem;
  try {
    if (place_.role.leads) leave_node(place_);
    if (group.rank() == 0) {
      record_on_nodes(*inputs_.files, inputs_.config.checkpoint.save, begun_.run_id, "");
    }
  } catch (const std::exception& error) {
    problem = error.what();
  }
  Context host = host_context();
  return agreed_failure(host, group, problem);
}

}  // namespace trident

#include "run/evaluation/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint_tools.h"
#include "engine/setup/from_config.h"
#include "formats/hugging_face/hugging_face.h"
#include "formats/hugging_face/model_directory.h"
#include "formats/hugging_face/weights_folder.h"
#include "parallel/transport/transport.h"
#include "report/metrics_file.h"
#include "run/folders/run_folder.h"

namespace trident {
namespace {

void require_free(const std::string& from, const std::string& to, bool overwrite) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (fs::equivalent(from, to, none)) {
    throw RequestError(fmt::format("{}: is the directory to read from; name another one", to));
  }
  if (fs::exists(fs::path(to) / MetricsFile::kName, none)) {
    throw RequestError(fmt::format("{}: holds the log files of a run ({}); name another directory",
                                   to, MetricsFile::kName));
  }
  check_set_place(to);
  if (overwrite) return;
  const std::string there = set_file_in(to);
  if (there.empty()) return;
  throw RequestError(fmt::format(
      "{}: holds a model already ({}); name another directory, or replace it with --overwrite", to,
      there));
}

}  // namespace

std::string convert_weights(const ArchitectureSet& architectures, const std::string& from,
                            const std::string& to, bool overwrite) {
  const Config config = config_of_directory(architectures, from, true);
  const Architecture& architecture = *architectures.at(config.model.architecture);
  const HuggingFaceExtras extras = read_extras(from, architecture.formats(), true);
  require_free(from, to, overwrite);
  const FolderLock lock(to);
  require_free(from, to, overwrite);  // checked again under the lock
  std::set<std::string> names;
  for (const auto& [name, text] : extras.files) names.insert(name);
  std::string note = note_of_companions(to, names);
  if (const std::string unread =
          notes_of(from, architecture.formats(), config.model.mtp_num_layers);
      !unread.empty()) {
    note += (note.empty() ? "" : "\n") + unread;
  }
  const auto device = make_cpu_device();
  run_local(1, {}, [&](Transport& transport) {
    Context context(*device, 1);
    RankModel model(context, config, architecture, schedule_of(config),
                    make_topology(transport.world(), mesh_of(config.parallel), transport.nodes()));
    load_hugging_face(model, from);
    save_hugging_face(model, transport.world(), to, extras);
  });
  return note;
}

std::string export_checkpoint(const FoundCheckpoint& checkpoint, const std::string& to,
                              bool overwrite) {
  require_free(checkpoint.path, to, overwrite);
  const FolderLock lock(to);
  require_free(checkpoint.path, to, overwrite);
  std::set<std::string> names;
  for (const auto& [name, file] : checkpoint.manifest->files) names.insert(name);
  const std::string note = note_of_companions(to, names);
  export_weights(checkpoint, to);
  return note;
}

Pruned prune_checkpoints(const std::string& save, const Retention& retention, bool dry_run) {
  std::optional<FolderLock> lock;
  if (!dry_run) lock.emplace(save);
  Pruned pruned;
  std::vector<FoundCheckpoint> found;
  for (FoundCheckpoint& one : find_checkpoints(save)) {
    if (one.manifest) {
      found.push_back(std::move(one));
    } else {
      pruned.damaged.push_back(one.problem);
    }
  }
  std::set<std::int64_t> whole;
  for (bool again = true; again;) {
    again = false;
    pruned.removed = iterations_to_remove(found, retention);
    for (std::size_t i = found.size(); i-- > 0;) {
      const FoundCheckpoint& one = found[i];
      if (whole.contains(one.iteration) || std::ranges::count(pruned.removed, one.iteration) > 0) {
        continue;
      }
      const std::vector<std::string> problems = damages(one.path, *one.manifest);
      if (problems.empty()) {
        whole.insert(one.iteration);
        continue;
      }
      pruned.damaged.insert(pruned.damaged.end(), problems.begin(), problems.end());
      found.erase(found.begin() + static_cast<std::ptrdiff_t>(i));
      again = true;
    }
  }
  if (dry_run) return pruned;
  for (const std::int64_t gone : pruned.removed) remove_checkpoint(real_files(), save, gone);
  return pruned;
}

}  // namespace trident

#include "run/loop/prepare_saves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/exchanged_texts.h"
#include "checkpoint/found_on_nodes.h"
#include "checkpoint/starts.h"

namespace trident {
namespace {

// The same text on all processes of a host that see this folder.
std::string folder_identity(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "none";
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

std::string latest_in(const std::string& save) {
  return (std::filesystem::path(save) / latest_name).string();
}

class Beginning {
 public:
  Beginning(const TrainingInputs& inputs, const ProcessGroup& files, RunReporter& reporter,
            NodePlace& place)
      : inputs_(inputs),
        asked_(inputs.config.checkpoint),
        files_(files),
        reporter_(reporter),
        place_(place),
        host_device_(make_cpu_device()),
        host_(*host_device_, 1) {}

  PreparedSaves begin(const std::string& run_id, bool saves) {
    begun_.run_id = run_id;
    if (inputs_.start.own) {
      for (const FoundCheckpoint& one : inputs_.start.checkpoints) count(one);
    }
    std::vector<FoundCheckpoint> found;
    if (reporter_.leads() && !asked_.save.empty()) found = find_checkpoints(asked_.save);
    for (const FoundCheckpoint& one : found) count(one);
    // This may throw, so it comes before any checkpoint is moved.
    if (asked_.local.interval > 0) {
      begin_on_nodes();
    } else if (reporter_.leads() && saves) {
      try {
        record();
      } catch (
          const std::exception& error) {  // only later starts with checkpoints on nodes need it
        reporter_.message(std::string("warning: ") + error.what());
      }
    }
    if (reporter_.leads() && inputs_.start.own) quarantine_later(found);
    return begun_;
  }

 private:
  void count(const FoundCheckpoint& one) {
    if (one.manifest) begun_.sequence = std::max(begun_.sequence, one.manifest->sequence);
  }

  void record() {
    begun_.start = record_start(*inputs_.files, asked_.save, begun_.run_id,
                                inputs_.start.own ? inputs_.begin.iteration : 0);
  }

  void begin_on_nodes() {
    begun_.run_id = text_from(host_, files_, 0, begun_.run_id);
    place_.run = run_folder_in(asked_.local.dir, begun_.run_id, asked_.save);
    place_.save = save_identity(asked_.save);
    const auto on_all = [&](const auto& action, const char* key = "/checkpoint/local/dir") {
      std::string failure;
      try {
        action();
      } catch (const std::exception& error) {
        failure = error.what();
      }
      failure = agreed_failure(host_, files_, failure);
      if (!failure.empty()) throw Error(fmt::format("config: {}: {}", key, failure));
    };
    on_all([&] {
      const auto& found = inputs_.start.listing_on_node;
      // A run that has not searched for these checkpoints must not remove them. An iteration in
      // checkpoint.load counts as a search.
      const bool looked = found || is_iteration(asked_.load);
      if (inputs_.start.own && (looked ? found && listing_of(kept_in(place_.run).sets) != *found
                                       : !kept_in(place_.run).sets.empty())) {
        throw Error(place_.run +
                    ": checkpoints have come or gone there while this run began; start it again");
      }
    });
    on_all([&] {
      if (place_.role.leads) make_node_folder(place_);
    });
    // All ranks of a node must see the same folder.
    const auto folders = exchanged_texts(host_, files_, folder_identity(place_.node()));
    on_all([&] {
      const auto first = static_cast<std::size_t>(place_.role.ranks.front());
      if (folders[first] == folders[static_cast<std::size_t>(files_.rank())]) return;
      throw Error(
          fmt::format("{}: is another folder than the one that rank {} of this node has made",
                      place_.node(), first));
    });
    // The steps from here on can't be undone.
    on_all(
        [&] {
          if (reporter_.leads()) record();
        },
        "/checkpoint/save");
    begun_.start = text_from(host_, files_, 0, begun_.start);
    on_all([&] {
      if (place_.role.leads) clear_node(place_, inputs_.start.own ? inputs_.begin.iteration : -1);
    });
    if (const std::string left = agreed_failure(host_, files_, left_here()); !left.empty()) {
      reporter_.message(
          "warning: left on the nodes by runs that saved to another folder of this name: " + left +
          "; remove those that no run will resume from");
    }
    const auto copies = static_cast<std::int64_t>(place_.role.copied_to.size());
    if (reporter_.leads() && copies < asked_.local.replicas) {
      reporter_.message(fmt::format(
          "warning: config: /checkpoint/local/replicas: {}, but there {}: a node that is lost "
          "takes its part of the checkpoints there along{}",
          asked_.local.replicas,
          copies == 0 ? "is one node alone" : fmt::format("are {} other nodes", copies),
          copies == 0 ? "" : fmt::format(", where more than {} are lost at once", copies)));
    }
  }

  std::string left_here() const {
    if (!place_.role.leads) return "";
    return fmt::format("{}", fmt::join(left_by_others(place_), ", "));
  }

  void quarantine_later(const std::vector<FoundCheckpoint>& found) {
    const std::int64_t first = inputs_.start.checkpoints.front().manifest->sequence;
    // The sequence number of a checkpoint on nodes depends on the checkpoints that its start found.
    const bool by_iteration = inputs_.start.checkpoints.front().on_nodes != nullptr;
    const auto is_later = [&](const FoundCheckpoint& one) {
      return by_iteration ? one.iteration > inputs_.begin.iteration
                          : one.manifest->sequence > first;
    };
    std::vector<FoundCheckpoint> later = newest_first(found);
    std::erase_if(later, [&](const FoundCheckpoint& one) { return !is_later(one); });
    for (const FoundCheckpoint& one : found) {
      const bool stays = one.foreign && one.iteration <= inputs_.begin.iteration;
      if (!one.manifest && !stays) later.push_back(one);
    }
    if (later.empty()) return;
    const std::string& save = asked_.save;
    std::vector<FoundCheckpoint> stay = newest_first(found);
    std::erase_if(stay, is_later);
    try {
      if (!stay.empty()) {
        inputs_.files->replace(latest_in(save), checkpoint_name(stay[0].iteration) + "\n");
      }
    } catch (const std::exception& error) {  // a full disk must not stop the run
      reporter_.message(std::string("warning: ") + error.what());
    }
    // The newest first: a process that dies on the way has gone back a part of the way.
    for (const FoundCheckpoint& one : later) {
      const std::string aside = quarantine(*inputs_.files, save, one.iteration);
      reporter_.message(fmt::format(
          "{} is {}: quarantined as {}", checkpoint_name(one.iteration),
          one.manifest || one.foreign ? "later than where this run resumes" : "damaged", aside));
    }
  }

  const TrainingInputs& inputs_;
  const CheckpointConfig& asked_;
  const ProcessGroup& files_;
  RunReporter& reporter_;
  NodePlace& place_;
  const std::unique_ptr<Device> host_device_;
  Context host_;
  PreparedSaves begun_;
};

}  // namespace

PreparedSaves prepare_saves(const TrainingInputs& inputs, const ProcessGroup& files,
                            RunReporter& reporter, const std::string& run_id, bool saves,
                            NodePlace& place) {
  return Beginning(inputs, files, reporter, place).begin(run_id, saves);
}

}  // namespace trident

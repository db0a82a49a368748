// Short runs that save on nodes and are killed.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>

#include "support/devices.h"
#include "tests/checkpoint/checkpoint_runs.h"

namespace trident::testing {

inline const std::string on_this_device =
    usual_device() == On::cuda ? "runtime.device=cuda" : "runtime.device=cpu";

// Four ranks on two nodes, with a checkpoint on the nodes after every second iteration.
inline Config on_nodes(const TempDir& dir, const Overrides& more = {},
                       const Layout& layout = {.data = 2, .tensor = 2}) {
  return run_config(
      dir.path(),
      small +
          Overrides{"training.train_iters=7", "checkpoint.local.interval=2",
                    "checkpoint.local.dir=" + dir / "nodes", "runtime.ranks_per_node=2",
                    on_this_device, "training.deterministic=true"} +
          more,
      layout);
}

inline void run_to_end(const Config& config, const TrainerHooks& hooks = {}) {
  const Launch launch;
  const TrainingJob job = prepare_job(LoadedConfig{.config = config}, launch);
  run_job(job, {.trainer = hooks});
}

// Runs a process that dies at this iteration, before it writes the iteration's line. Returns its
// messages.
inline std::string killed_at(std::int64_t iteration, const Config& config) {
  Messages messages;
  TrainerHooks hooks = messages.hooks();
  hooks.on_iteration = [=](IterationMetrics& m) {
    if (m.iteration == iteration) throw std::runtime_error("killed");
  };
  try {
    run_to_end(config, hooks);
    ADD_FAILURE() << "it has come to its end";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "killed");
  }
  return messages.all();
}

inline std::string node_run_folder(const TempDir& dir) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "nodes"))
    found = entry.path().string();
  return found;
}

// The checkpoints on the nodes: "node-0/iteration-4" and so on.
inline std::set<std::string> kept_by_nodes(const TempDir& dir) {
  std::set<std::string> list;
  if (!std::filesystem::exists(dir / "nodes")) return list;
  for (const auto& node : std::filesystem::directory_iterator(node_run_folder(dir))) {
    for (const auto& entry : std::filesystem::directory_iterator(node.path())) {
      if (entry.is_directory()) {
        list.insert(entry.path().lexically_relative(node_run_folder(dir)).string());
      }
    }
  }
  return list;
}

}  // namespace trident::testing

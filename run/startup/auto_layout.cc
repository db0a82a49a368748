#include "run/startup/auto_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "planner/search/layout_search.h"
#include "run/startup/measured_models.h"

namespace trident {
namespace {

constexpr std::size_t plans_shown = 3;  // the chosen plan comes first

class LayoutChooser {
 public:
  LayoutChooser(const LoadedConfig& base, const LoadOptions& load, const JobSize& job,
                const MachineSource& source)
      : base_(base), load_(load), job_(job), source_(source) {
    load_.ranks.reset();
    load_.local_ranks = job.ranks_per_node;
  }

  ChosenLayout run() const {
    need_batch(base_);
    LayoutRequest request{.written = base_.written,
                          .load = load_,
                          .machine = machine(),
                          .global_batch_size = base_.config.batch.global_batch_size,
                          .assume = source_.assume,
                          .held = given_keys(base_),
                          .memory = job_.memory,
                          .ranks = {job_.ranks},
                          .fastest = true,
                          .wanted = plans_shown,
                          .threads = load_.cores,
                          .progress = source_.progress};
    const LayoutSearch found = search_layouts(request);
    ChosenLayout chosen{.set = {"parallel={}"}, .text = layouts_text(found, request)};
    for (const std::string& one : found.plans.front().set) {
      if (!one.starts_with("runtime.")) chosen.set.push_back(one);
    }
    return chosen;
  }

 private:
  Machine machine() const {
    const bool several_nodes = job_.ranks_per_node < job_.ranks;
    const std::string& path = base_.config.runtime.machine;
    if (source_.machine) return *source_.machine;
    Machine machine;
    if (!path.empty()) {
      machine = read_machine(path, source_.folder);
    } else if (const bool gpu = base_.config.runtime.device == "cuda" && job_.ranks > 1;
               several_nodes || gpu || !source_.measure) {
      throw RequestError(
          "config: /parallel: \"auto\" needs runtime.machine, a machine's file (trident bench "
          "machine, configs/machines)" +
          std::string(several_nodes ? ": links between nodes aren't measured here"
                      : gpu         ? ": links between GPUs aren't measured here"
                                    : ""));
    } else {
      const MeasureBudget budget;
      if (source_.report) {
        source_.report(
            fmt::format("parallel \"auto\": measuring this machine, for {:.0f} s and {} at most",
                        budget.seconds, bytes_text(budget.bytes)));
      }
      machine = source_.measure(models_to_measure(base_, load_, job_, budget), load_.cores);
    }
    const bool gpu = base_.config.runtime.device == "cuda";
    if (machine.device.gpu != gpu) {
      throw RequestError(fmt::format(
          "config: /runtime/machine: {} has a {}, runtime.device is \"{}\"", machine.name,
          machine.device.gpu ? "GPU" : "CPU", base_.config.runtime.device));
    }
    // The number of ranks, even where several ranks share a core.
    machine.devices_per_node = job_.ranks_per_node;
    machine.nodes = 0;
    return machine;
  }

  const LoadedConfig& base_;
  LoadOptions load_;
  const JobSize job_;
  const MachineSource& source_;
};

}  // namespace

ChosenLayout choose_layout(const LoadedConfig& base, const LoadOptions& load, const JobSize& job,
                           const MachineSource& source) {
  return LayoutChooser(base, load, job, source).run();
}

}  // namespace trident

#include "training/run/auto_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "training/lab/layout_search.h"
#include "training/plan/fit.h"
#include "training/setup/from_config.h"
#include "training/setup/kinds.h"

namespace trident {
namespace {

constexpr std::size_t plans_shown = 3;  // the chosen one first

// A layer or two of the model, as ranks of each tensor-parallel size run them: one micro-batch of
// one sequence, and where that is short, one of some sequences.
std::vector<Config> small_models(const LoadedConfig& base, const LoadOptions& load,
                                 const JobSize& job) {
  constexpr std::int64_t enough_tokens = 1024;
  const std::string tensor = [] {
    for (const MeshAxis& axis : ParallelConfig{}.axes()) {
      if (axis.name == "tp") return "parallel." + axis.key;
    }
    throw Error("small_models: there is no axis tp");
  }();
  const std::int64_t tokens = base.config.data.sequence_length;
  const std::int64_t most =
      std::max<std::int64_t>(1, enough_tokens / std::max<std::int64_t>(1, tokens));
  std::vector<Config> models;
  std::string last;
  for (std::int64_t ranks = 1; ranks <= job.ranks_per_node; ++ranks) {
    if (job.ranks_per_node % ranks != 0) continue;
    for (std::int64_t samples = 1; samples <= most; samples = samples < most ? most : most + 1) {
      std::vector<std::string> set{
          fmt::format("{}={}", tensor, ranks),
          fmt::format("model.num_layers={}",
                      std::min<std::int64_t>(2, base.config.model.num_layers)),
          fmt::format("batch.micro_batch_size={}", samples),
          fmt::format("batch.global_batch_size={}", samples),
          "batch.rampup_batch_size=null",
          "zero_optimization.stage=0",
          "activation_checkpointing.granularity=none"};
      for (const std::string& key : layout_keys()) {
        const bool given = std::any_of(set.begin(), set.end(), [&](const std::string& one) {
          return one.starts_with(key + "=");
        });
        if (!given) set.push_back(key + "=null");
      }
      try {
        Config model = parse_config(base.written, set, load).config;
        const auto peak = planned_peak(model, *architecture_of(model));
        if (peak && *peak <= job.memory) {
          models.push_back(std::move(model));
        } else {
          last = fmt::format(
              "config: /parallel: \"auto\" measures two layers of the model, which don't fit {} "
              "a rank; give runtime.machine",
              bytes_text(job.memory));
        }
      } catch (const RequestError& error) {
        last = error.what();  // heads that don't divide, say
      }
    }
  }
  if (models.empty()) throw RequestError(last);
  return models;
}

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
                          .wanted = plans_shown,
                          .effort = job_.effort};
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
      if (source_.tell) source_.tell("parallel \"auto\": measuring this machine");
      machine = source_.measure(small_models(base_, load_, job_), load_.cores);
    }
    const bool gpu = base_.config.runtime.device == "cuda";
    if (machine.device.gpu != gpu) {
      throw RequestError(fmt::format(
          "config: /runtime/machine: {} has a {}, runtime.device is \"{}\"", machine.name,
          machine.device.gpu ? "GPU" : "CPU", base_.config.runtime.device));
    }
    // As many as run, though some share a core.
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

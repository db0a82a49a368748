// Rows of the field table: checkpoints, the machine, and logging.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "settings/field_rows.h"

namespace trident::config_detail {
namespace {

std::string algorithm_text(const ConfigConstraints& constraints) {
  const auto ordered = names_where(constraints.algorithms, &AlgorithmConstraints::in_rank_order);
  const auto others = names_where(constraints.algorithms,
                                  [](const AlgorithmConstraints& a) { return !a.in_rank_order; });
  std::string text = fmt::format(
      "How all-reduce is done. \"auto\" is {} where training.deterministic is set, else chosen by "
      "size",
      ordered.empty() ? "chosen by size, too," : ordered.front());
  if (others.empty()) return text + ".";
  return text + fmt::format(
                    "; {} don't add in rank order, so above 2 ranks they need "
                    "training.deterministic false.",
                    list_and(others));
}

// The choices of runtime.transport, and the choice that "auto" takes (Resolver::transport).
std::string transport_text(const ConfigConstraints& constraints) {
  const auto first = [&](auto fits) {
    const auto names = names_where(constraints.transports, fits);
    return names.empty() ? std::string("none") : names.front();
  };
  const std::string of_gpus = first(&TransportConstraints::gpu_for_each_rank);
  return described("How ranks communicate: ", &ConfigConstraints::transports, ", ", ", ",
                   "; ")(constraints) +
         fmt::format(
             "\"auto\" is {} (of GPUs {}) under mpirun or srun, else {} where each of several "
             "ranks "
             "has a GPU, else {}.",
             first(&TransportConstraints::processes), of_gpus, of_gpus,
             first(&TransportConstraints::threads));
}

}  // namespace

std::vector<Field> checkpoint_fields() {
  const auto member = [](auto m) { return in(&Config::checkpoint, m); };
  using C = CheckpointConfig;
  using L = LocalCheckpointConfig;
  const auto local = []<class T>(T L::*m) {
    return Member<T>([=](Config& config) -> T& { return config.checkpoint.local.*m; });
  };
  return {
      {.path = "/checkpoint/load",
       .member = member(&C::load),
       .doc = "The start of a run that finds no checkpoint of its own to resume from: a Hugging "
              "Face directory (its weights), or a checkpoint (all of its state), in any layout. An "
              "iteration (\"40\") resumes from that checkpoint in `save` and from no other; "
              "\"auto\" resumes from the newest one there.",
       .derived = "none",
       .number_is_text = true},
      {.path = "/checkpoint/exclude_from_loading",
       .member = member(&C::exclude_from_loading),
       .doc =
           "Parts of the checkpoint whose path `load` gives that are not loaded: the optimizer's "
           "state and loss scale (both start afresh), the iteration (the run begins at 0), the "
           "position in the data (its samples start afresh). With all three only the weights are "
           "loaded, in full precision. A run's own checkpoints are always loaded completely.",
       .choices = {{"optimizer"}, {"iteration"}, {"data"}}},
      {.path = "/checkpoint/key_mapping",
       .member = member(&C::key_mapping),
       .doc = "Maps names of tensors where `load` points to the model's names, such as "
              "{\"blocks.*.w1\": \"layers.*.mlp.up.weight\"}; * stands for the same text in both. "
              "A checkpoint's names are those that `trident checkpoint inspect` lists, without the "
              "part before the slash; a Hugging Face directory has its own names."},
      {.path = "/checkpoint/grow_vocabulary",
       .member = member(&C::grow_vocabulary),
       .doc = "Loads weights of a model with a smaller vocabulary than model.vocab_size from where "
              "`load` points; entries beyond it are initialized as in a new run."},
      {.path = "/checkpoint/resume",
       .member = member(&C::resume),
       .doc = "Whether to resume from the newest complete checkpoint in `save`: auto (where there "
              "is one), must, or never.",
       .choices = {{"auto"}, {"must"}, {"never"}}},
      {.path = "/checkpoint/save",
       .member = member(&C::save),
       .doc = "Directory that gets the final weights, in Hugging Face's format, and the "
              "checkpoints, each in a folder iteration-<n>.",
       .derived = "none"},
      {.path = "/checkpoint/overwrite",
       .member = member(&C::overwrite),
       .doc = "Replaces weights and checkpoints in `save` that do not belong to the run in "
              "`logging.dir`; without it such a run is refused."},
      {.path = "/checkpoint/save_interval",
       .member = member(&C::save_interval),
       .doc = "Saves a checkpoint each time this many iterations have passed, and at the end. 0: "
              "only where a signal stops the run.",
       .unit = "iterations",
       .range = from(0, kMaxIterations)},
      {.path = "/checkpoint/save_total_limit",
       .member = member(&C::save_total_limit),
       .doc = "Number of newest checkpoints that are kept; 0: all.",
       .range = from(0, 1e6)},
      {.path = "/checkpoint/save_every_keep",
       .member = member(&C::save_every_keep),
       .doc = "Checkpoints whose iteration is a multiple of this are never removed; 0: none.",
       .unit = "iterations",
       .range = from(0, kMaxIterations)},
      {.path = "/checkpoint/keep_best",
       .member = member(&C::keep_best),
       .doc = "Also keeps the checkpoint with the least validation loss, of those that were saved "
              "where the loss was evaluated."},
      {.path = "/checkpoint/max_writers",
       .member = member(&C::max_writers),
       .doc = "Largest number of files for the state other than the weights; ranks then share "
              "files. 0: one file for each rank.",
       .range = from(0, 1e6)},
      {.path = "/checkpoint/min_slice",
       .member = member(&C::min_slice),
       .doc = "Where several ranks hold a tensor, each of them writes at least this much of it, or "
              "none; files of state hold at least this much on average.",
       .unit = "bytes",
       .range = from(0, 1e15)},
      {.path = "/checkpoint/asynchronous",
       .member = member(&C::asynchronous),
       .doc = "Writes checkpoints while training continues: training waits only for copies of the "
              "state, and only where they aren't made by the time that the next update changes it. "
              "The last checkpoint of a run is written before the run ends."},
      {.path = "/checkpoint/staging_limit",
       .member = member(&C::staging_limit),
       .doc = "Memory on each rank for copies of its state that asynchronous saves have yet to "
              "write. Where a rank's part is larger, training waits for the disk. A single row of "
              "a tensor that is larger than this is copied nevertheless.",
       .unit = "bytes",
       .range = from(std::int64_t{16} << 20, 1e15)},
      {.path = "/checkpoint/device_copies",
       .member = member(&C::device_copies),
       .doc = "Asynchronous saves first copy the state on a GPU within that GPU's memory, which "
              "takes milliseconds, wherever that leaves a sixteenth of the GPU's memory free. "
              "Training then waits for no other copy."},
      {.path = "/checkpoint/niceness",
       .member = member(&C::niceness),
       .doc = "Niceness of the threads that write asynchronous saves, as nice(1) counts: the "
              "higher it is, the less they take from training where cores are few.",
       .range = from(0, 19)},
      {.path = "/checkpoint/io_priority",
       .member = member(&C::io_priority),
       .doc = "I/O priority of the same threads, as ionice(1) has it: usual, low (the last of the "
              "best-effort class), or idle. I/O schedulers without priorities ignore it.",
       .choices = {{"usual"}, {"low"}, {"idle"}}},
      {.path = "/checkpoint/mtbf_hours",
       .member = member(&C::mtbf_hours),
       .doc = "Mean time between failures of the whole job, of any kind. With it the run reports "
              "which intervals would be best, by the measured cost of its saves (Young 1974, Daly "
              "2006). 0: not stated.",
       .unit = "hours",
       .range = from(0, 1e9)},
      {.path = "/checkpoint/local/dir",
       .member = local(&L::dir),
       .doc = "Folder in memory (/dev/shm/...) or on the node's own disk for checkpoints in "
              "addition to those in `save`. A run resumes from the newest complete checkpoint in "
              "either place; those in this folder are deleted when the run has ended.",
       .derived = "none"},
      {.path = "/checkpoint/local/interval",
       .member = local(&L::interval),
       .doc = "Saves a checkpoint there each time this many iterations have passed, unless one in "
              "`save` is due. The previous one is then deleted. 0: none.",
       .unit = "iterations",
       .range = from(0, kMaxIterations)},
      {.path = "/checkpoint/local/replicas",
       .member = local(&L::replicas),
       .doc = "Copies of each rank's part on other nodes, as far as there are others: this many "
              "nodes may be lost at once.",
       .range = from(0, 1e3)},
      {.path = "/checkpoint/local/mtbf_hours",
       .member = local(&L::mtbf_hours),
       .doc = "Mean time between failures that destroy the checkpoints on nodes, too: more nodes "
              "at once than there are replicas, a power cut. With it the run reports which "
              "save_interval would be best. 0: as checkpoint.mtbf_hours.",
       .unit = "hours",
       .range = from(0, 1e9)},
  };
}

std::vector<Field> runtime_fields() {
  const auto member = [](auto m) { return in(&Config::runtime, m); };
  using R = RuntimeConfig;
  return {
      {.path = "/runtime/device",
       .member = member(&R::device),
       .doc = "Where the ranks compute: on the CPU, or on this machine's GPUs in turn; \"auto\" is "
              "a GPU where there is one that the transport serves, else the CPU.",
       .choices = {{"cpu"}, {"cuda"}, {"auto"}}},
      {.path = "/runtime/transport",
       .member = member(&R::transport),
       .doc = transport_text,
       .choices = {{"auto"}},
       .kinds =
           [](const ConfigConstraints& constraints) { return names_of(constraints.transports); }},
      {.path = "/runtime/ranks_per_node",
       .member = member(&R::ranks_per_node),
       .doc = "Divides hosts into emulated nodes: this many consecutive ranks count as one node, "
              "for the groups inside and across nodes. Left out, nodes are hosts, of equal size or "
              "not; given, it has to divide each host into complete nodes.",
       .unit = "ranks",
       .range = from(1, kMaxRanks),
       .derived = "hosts, as the transport finds them"},
      {.path = "/runtime/threads_per_rank",
       .member = member(&R::threads_per_rank),
       .doc = "Compute threads of each rank; \"auto\" shares the machine's cores out evenly.",
       .unit = "threads",
       .range = from(1, 4096),
       .choices = {{"auto"}},
       .derived = "\"auto\""},
      {.path = "/runtime/timeout_seconds",
       .member = member(&R::timeout_seconds),
       .doc = "A rank that a collective has waited for this long ends the run with an error.",
       .unit = "seconds",
       .range = from(0.001, 1e6)},
      {.path = "/runtime/machine",
       .member = member(&R::machine),
       .doc = "The machine for which parallel \"auto\" is chosen: a machine file that `trident "
              "bench machine` wrote, or one of configs/machines. Without one this machine is "
              "measured at the start; with ranks on several nodes it has to be given.",
       .derived = "none"},
      {.path = "/runtime/collective_algorithm",
       .member = member(&R::collective_algorithm),
       .doc = algorithm_text,
       .choices = {{"auto"}},
       .kinds =
           [](const ConfigConstraints& constraints) { return names_of(constraints.algorithms); }},
      {.path = "/runtime/bf16_products",
       .member = member(&R::bf16_products),
       .doc = "How a CPU with AVX512-BF16 multiplies bf16: native, by these instructions, or "
              "widened, from operands that become fp32 block by block, which is twice as fast on "
              "processors whose instructions are slow. \"auto\" measures both at a run's start "
              "and keeps the faster one for the whole run, since they differ in last digits; with "
              "AMX it is native. Other devices and dtypes have one way, and it stays \"auto\".",
       .choices = {{"auto"}, {"native"}, {"widened"}}},
  };
}

std::vector<Field> logging_fields() {
  const auto member = [](auto m) { return in(&Config::logging, m); };
  using L = LoggingConfig;
  return {
      {.path = "/logging/dir",
       .member = member(&L::dir),
       .doc = "Directory of the run's files (metrics.jsonl, timeline.svg, trace.json, "
              "config.json, config.user.json, run.json, report.html).",
       .derived = "runs/ and the config file's name without .json"},
      {.path = "/logging/overwrite",
       .member = member(&L::overwrite),
       .doc = "Replaces the files of an earlier run in `dir`, which is refused otherwise: its "
              "metrics, TensorBoard events, pictures, report and gradients are deleted, other "
              "files stay."},
      {.path = "/logging/log_interval",
       .member = member(&L::log_interval),
       .doc =
           "Iterations from one progress line to the next; the first, the last and evaluated ones "
           "are shown as well. metrics.jsonl and TensorBoard have every iteration.",
       .unit = "iterations",
       .range = from(1, kMaxIterations),
       .derived = "four lines a minute; on a terminal the newest iteration is drawn below them"},
      {.path = "/logging/tensorboard",
       .member = member(&L::tensorboard),
       .doc = "Also writes the metrics as TensorBoard events."},
      {.path = "/logging/trace",
       .member = member(&L::trace),
       .doc = "Records an iteration as timeline.svg and trace.json: those of `trace_at`."},
      {.path = "/logging/trace_at",
       .member = member(&L::trace_at),
       .doc = "Iterations whose timelines are recorded and drawn in the report; where there are "
              "several, each also has files of its own (timeline-<iteration>.svg, "
              "trace-<iteration>.json). []: the second after each start.",
       .unit = "iterations",
       .range = from(1, kMaxIterations)},
      {.path = "/logging/dump_gradients_at",
       .member = member(&L::dump_gradients_at),
       .doc = "Iterations whose full gradients are written to gradients-<iteration>.safetensors, "
              "before clipping.",
       .unit = "iterations",
       .range = from(1, kMaxIterations)},
  };
}

}  // namespace trident::config_detail

#include "run/folders/starting_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "checkpoint/checkpoint_reader.h"
#include "formats/hugging_face/key_mapping.h"
#include "run/folders/config_differences.h"
#include "run/folders/locked_folder.h"
#include "run/folders/run_folder.h"

namespace trident {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kDifferent = "differs from the checkpoint: ";

// Whether the folder is a checkpoint or was one. checkpoint.load then doesn't mean its weights
// alone.
bool is_checkpoint(const std::string& path) {
  const fs::path folder = path;
  std::error_code code;
  if (fs::exists(fs::symlink_status((folder / manifest_name).parent_path(), code))) return true;
  if (code && code != std::errc::no_such_file_or_directory && code != std::errc::not_a_directory) {
    const std::string text = fmt::format("config: /checkpoint/load: {}: {}", path, code.message());
    // Errors of names and permissions last; others may be temporary.
    const std::errc lasting[] = {std::errc::filename_too_long, std::errc::permission_denied,
                                 std::errc::too_many_symbolic_link_levels};
    if (std::ranges::any_of(lasting, [&](std::errc one) { return code == one; })) {
      throw RequestError(text);
    }
    throw Error(text);
  }
  // In a run's folder the name identifies a checkpoint.
  const fs::path real = fs::weakly_canonical(fs::absolute(folder, code), code);
  const fs::path save = real.parent_path();
  return is_checkpoint_name(real.filename().string()) && fs::is_directory(real, code) &&
         (fs::exists(save / latest_name, code) || fs::exists(save / run_file, code));
}

// Whether `path` leads to one of the checkpoints in `save`, or to `save` itself with checkpoints in
// it: a new run removes these. It does not remove quarantined ones.
bool would_go(const std::string& path, const std::string& save,
              const std::vector<FoundCheckpoint>& there) {
  if (save.empty()) return false;
  std::error_code ignored;
  const fs::path inner = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  const fs::path outer = fs::weakly_canonical(fs::absolute(save, ignored), ignored);
  const auto [end, at] = std::ranges::mismatch(outer, inner);
  if (end != outer.end()) return false;
  return at == inner.end() ? !there.empty() : iteration_of(at->string()).has_value();
}

std::vector<std::string> listing_of(const std::vector<FoundCheckpoint>& found) {
  std::vector<std::string> list;
  for (const FoundCheckpoint& one : found) {
    list.push_back(one.path + " " + (one.manifest ? one.manifest->root : one.problem));
  }
  return list;
}

// The complete checkpoints among `found`, the newest first. Adds a message about each of the
// others, unless a later one is complete.
std::vector<FoundCheckpoint> whole_ones(const std::vector<FoundCheckpoint>& found,
                                        StartingPoint& start) {
  std::vector<FoundCheckpoint> whole = newest_first(found);
  for (const FoundCheckpoint& one : found) {
    const bool older = !whole.empty() && one.iteration < whole.front().iteration;
    if (one.foreign && !older) {
      throw RequestError(fmt::format("{} (not damaged: no earlier one replaces it)", one.problem));
    }
    if (!one.problem.empty() && !older) {
      start.messages.push_back("warning: can't resume from a checkpoint: " + one.problem);
    }
  }
  return whole;
}

// Opens the checkpoint at `path`, which checkpoint.load names, so that no other one may replace it.
FoundCheckpoint named(const std::string& path) {
  FoundCheckpoint checkpoint{.path = path};
  try {
    checkpoint.manifest = open_checkpoint(path);
  } catch (const RequestError& error) {
    throw error.at("config: /checkpoint/load: ");
  }
  checkpoint.iteration = checkpoint.manifest->iteration;
  return checkpoint;
}

// Renames the tensors of a checkpoint to the model's names.
void rename_tensors(Manifest& manifest, const std::map<std::string, std::string>& mapping) {
  if (mapping.empty()) return;
  const auto parameter_of = [](const std::string& name) { return name.substr(name.find('/') + 1); };
  std::vector<std::string> names;
  for (const auto& [name, tensor] : manifest.tensors) names.push_back(parameter_of(name));
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const auto mapped = mapped_names(names, mapping);
  std::map<std::string, SavedTensor> tensors;
  for (auto& [name, tensor] : manifest.tensors) {
    const std::string state = name.substr(0, name.find('/'));
    tensors[saved_name(state, mapped.at(parameter_of(name)))] = std::move(tensor);
  }
  manifest.tensors = std::move(tensors);
}

// Applies the config's key_mapping and exclude_from_loading to the checkpoints from
// checkpoint.load.
void take_parts(const CheckpointConfig& asked, StartingPoint& start) {
  const auto excluded = [&](const char* part) {
    return std::ranges::count(asked.exclude_from_loading, part) > 0;
  };
  start.taken = {.optimizer = !excluded("optimizer"),
                 .iteration = !excluded("iteration"),
                 .data = !excluded("data")};
  for (FoundCheckpoint& one : start.checkpoints) rename_tensors(*one.manifest, asked.key_mapping);
}

// Merges the checkpoints on nodes into the list of checkpoints in checkpoint.save, the latest one
// first.
void add_on_nodes(const FoundOnNodes& on_nodes, const CheckpointConfig& asked,
                  StartingPoint& start) {
  for (const FoundOnNodes::One& one : on_nodes.list) {
    const std::string name = checkpoint_name(one.manifest.iteration);
    const FoundCheckpoint found{.path = (fs::path(one.set->run) / "node-*" / name).string(),
                                .iteration = one.manifest.iteration,
                                .manifest = one.manifest,
                                .on_nodes = one.set};
    auto& list = start.checkpoints;
    if (!list.empty() && list.front().manifest->run_id != one.manifest.run_id) continue;
    const auto at = std::ranges::find_if(
        list, [&](const FoundCheckpoint& other) { return other.iteration <= found.iteration; });
    if (at == list.end() || at->iteration < found.iteration) list.insert(at, found);
  }
  const std::int64_t newest =
      start.checkpoints.empty() ? -1 : start.checkpoints.front().manifest->iteration;
  for (const auto& [iteration, why] : on_nodes.foreign) {
    if (iteration <= newest) continue;
    throw RequestError(fmt::format("{} (not damaged: no earlier one replaces it)", why));
  }
  for (const auto& [iteration, why] : on_nodes.left) {
    if (iteration <= newest) continue;
    start.messages.push_back("warning: can't resume from a checkpoint: " + why);
  }
  if (on_nodes.unplaced <= newest) return;
  throw RequestError(fmt::format(
      "config: /checkpoint/local/dir: \"{}\": {} is of a start that {} doesn't list, so it is "
      "unknown whether the run has resumed from there; restore the list, or set checkpoint.load to "
      "an iteration in checkpoint.save to resume without the nodes' checkpoints",
      asked.local.dir, on_nodes.unplaced_in, (fs::path(asked.save) / ".trident-starts").string()));
}

// The run that saves in `save`. If its .trident-run is lost, the checkpoints identify it, or the
// list of its starts.
std::string run_in(const std::string& save) {
  if (const std::string run = read_without_lock(save).run(); !run.empty()) return run;
  const std::vector<FoundCheckpoint> whole = newest_first(find_checkpoints(save));
  return whole.empty() ? read_starts(save).run : whole.front().manifest->run_id;
}

// Reports nodes that have saved and are missing. Throws RequestError if the run has no other
// checkpoint, so that it does not begin again from the first iteration.
void miss_nodes(const CheckpointConfig& asked, StartingPoint& start) {
  try {
    if (!read_starts(asked.save, run_in(asked.save)).any_on_nodes()) return;
  } catch (const Error&) {  // the search on nodes reports it
    return;
  }
  const std::string missing =
      asked.local.dir.empty()
          ? "the run has saved on its nodes, and checkpoint.local doesn't say where"
          : fmt::format("the run has saved on its nodes, and nothing of that is in \"{}\"",
                        asked.local.dir);
  if (!start.checkpoints.empty())
    return start.messages.push_back("warning: " + missing + ": resuming without them");
  throw RequestError(
      fmt::format("config: /checkpoint/resume: \"{}\", but no checkpoint is there: {}; \"never\" "
                  "begins a new run",
                  asked.resume, missing));
}

void look(const CheckpointConfig& asked, const FoundOnNodes& on_nodes, StartingPoint& start) {
  std::vector<FoundCheckpoint> there;
  if (!asked.save.empty()) {
    there = find_checkpoints(asked.save);
    start.listing = listing_of(there);
  }
  if (is_iteration(asked.load)) {
    start.own = true;
    start.checkpoints = {
        named((fs::path(asked.save) / checkpoint_name(std::stoll(asked.load))).string())};
    return;
  }
  if (asked.resume != "never") {
    start.checkpoints = whole_ones(there, start);
    add_on_nodes(on_nodes, asked, start);
    start.own = !start.checkpoints.empty();
    if (!asked.save.empty() && on_nodes.list.empty() && start.messages.empty()) {
      miss_nodes(asked, start);
    }
    if (start.own && !asked.load.empty() && asked.load != "auto") {
      start.messages.push_back(fmt::format(
          "checkpoint.load \"{}\" is not used: the run has checkpoints of its own in \"{}\"",
          asked.load, asked.save));
    }
    if (start.own) return;
    if (!start.messages.empty()) {
      throw RequestError(
          fmt::format("config: /checkpoint/resume: \"{}\", but no checkpoint in \"{}\" is "
                      "complete ({}); \"never\" begins a new run",
                      asked.resume, asked.save, start.messages.back()));
    }
  }
  if (asked.resume == "must") {
    throw RequestError(fmt::format(
        "config: /checkpoint/resume: \"must\", but there is no checkpoint in \"{}\"", asked.save));
  }
  if (asked.load.empty() || asked.load == "auto") return;
  if (would_go(asked.load, asked.save, there)) {
    throw RequestError(fmt::format(
        "config: /checkpoint/load: \"{}\" lies in checkpoint.save, whose checkpoints a new run "
        "replaces; choose another checkpoint.save",
        asked.load));
  }
  if (is_checkpoint(asked.load)) {
    start.checkpoints = {named(asked.load)};
    return take_parts(asked, start);
  }
  std::error_code ignored;
  const fs::path folder = asked.load;
  std::vector<FoundCheckpoint> loaded = find_checkpoints(asked.load);
  if (!fs::exists(folder / "config.json", ignored)) {  // only a run that has ended writes it
    start.checkpoints = whole_ones(loaded, start);
  }
  if (!start.checkpoints.empty()) return take_parts(asked, start);
  start.weights = asked.load;
  start.messages.push_back(fmt::format("beginning with the weights of {}", asked.load));
  if (!asked.exclude_from_loading.empty()) {
    start.messages.push_back(fmt::format(
        "{} has weights alone: checkpoint.exclude_from_loading leaves nothing out", asked.load));
  }
  loaded = newest_first(std::move(loaded));
  if (loaded.empty()) return;
  start.messages.push_back(
      fmt::format("taking the weights of {} alone; checkpoint.load \"{}\" would resume from "
                  "there, with optimizer state and place in the data",
                  asked.load, loaded.front().path));
}

std::string text_of(const FoundCheckpoint& checkpoint, const std::string& file) {
  if (checkpoint.on_nodes == nullptr) {
    return CheckpointReader(checkpoint.path, *checkpoint.manifest).text(file);
  }
  const auto text = checkpoint.on_nodes->texts.find(file);
  if (text == checkpoint.on_nodes->texts.end()) {
    throw RequestError(fmt::format("{}: there is no {}", checkpoint.path, file));
  }
  return text->second;
}

// The vocabulary size in this config.json if the run's is larger; else 0.
std::int64_t entries_of(const std::string& saved, std::int64_t vocab_size,
                        const std::string& name) {
  const json document = parse_json(saved, name);
  const json::json_pointer at("/model/vocab_size");
  if (!document.contains(at) || !document[at].is_number_unsigned()) return 0;
  const auto entries = document[at].get<std::int64_t>();
  return entries < vocab_size ? entries : 0;
}

}  // namespace

std::string run_of(const StartingPoint& start) {
  return start.own && !start.checkpoints.empty() ? start.checkpoints.front().manifest->run_id : "";
}

void require_unchanged(const StartingPoint& start, const CheckpointConfig& asked) {
  if (!start.listing) return;
  if (listing_of(find_checkpoints(asked.save)) == *start.listing) return;
  throw RequestError(fmt::format(
      "config: /checkpoint/save: \"{}\": checkpoints have come or gone there while this run began; "
      "start it again",
      asked.save));
}

void compare_configs(StartingPoint& start, const Config& config) {
  if (start.checkpoints.empty()) return;
  const FoundCheckpoint& first = start.checkpoints.front();
  std::string saved;
  try {
    saved = text_of(first, "trident/config.json");
  } catch (const RequestError& error) {
    throw DamagedCheckpoint(error.problems());
  }
  const bool grows = config.checkpoint.grow_vocabulary && !start.own;
  start.taken.entries = grows ? entries_of(saved, config.model.vocab_size, first.path) : 0;
  const json::json_pointer products("/runtime/bf16_products");
  const json document = parse_json(saved, first.path);
  start.bf16_products = document.contains(products) && document[products].is_string()
                            ? document[products].get<std::string>()
                            : "";
  for (const std::string& line :
       config_differences(saved, config, first.path + "/trident/config.json", grows)) {
    start.messages.push_back(kDifferent + line);
  }
}

void fall_back(StartingPoint& start, const std::string& load, const std::string& why) {
  std::erase_if(start.messages,
                [](const std::string& message) { return message.starts_with(kDifferent); });
  if (start.checkpoints.size() < 2) {
    std::vector<std::string> problems;
    for (const std::string& message : start.messages) {
      if (message.starts_with("warning: ")) problems.push_back(message);
    }
    problems.push_back(why);
    problems.emplace_back(is_iteration(load) || !start.own
                              ? "checkpoint.load leads to no other checkpoint"
                              : "there is no other checkpoint to resume from (checkpoint.resume "
                                "\"never\" begins a new run)");
    throw RequestError(problems);
  }
  start.messages.push_back(fmt::format("warning: can't resume from {}: {}; taking {}",
                                       start.checkpoints[0].path, why, start.checkpoints[1].path));
  start.checkpoints.erase(start.checkpoints.begin());
}

Starts starts_on_nodes(const CheckpointConfig& asked) {
  return looks_on_nodes(asked) ? read_starts(asked.save, run_in(asked.save)) : Starts{};
}

bool looks_on_nodes(const CheckpointConfig& asked) {
  return !asked.local.dir.empty() && asked.resume != "never" && !is_iteration(asked.load);
}

StartingPoint find_start(const CheckpointConfig& asked, const std::string& log_dir,
                         const FoundOnNodes& on_nodes) {
  StartingPoint start;
  start.listing_on_node = on_nodes.listing;
  start.hold = on_nodes.hold;
  look(asked, on_nodes, start);
  start.again = !start.own && died_before_saving(asked, log_dir);
  if (start.again) {
    start.messages.push_back(
        "an earlier start has ended before its first checkpoint: beginning again");
  }
  return start;
}

}  // namespace trident

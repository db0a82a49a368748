// `checkpoint`: lists, inspects, verifies, compares, exports and prunes checkpoints without
// starting ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "app/commands.h"
#include "app/options.h"
#include "base/error.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "base/process/process.h"
#include "base/units.h"
#include "checkpoint/checkpoint_tools.h"
#include "run/evaluation/convert.h"
#include "run/folders/locked_folder.h"
#include "run/folders/run_folder.h"

namespace trident::app {
namespace {

using nlohmann::ordered_json;

struct CheckpointOptions {
  std::string first, second, format = "text";
  bool hashes = false, dry_run = false, overwrite = false;
  Retention keep;
};

ordered_json json_of(const SavedNumber& number) {
  return std::visit([](auto value) { return ordered_json(value); }, number);
}

int list(const CheckpointOptions& options) {
  const std::vector<FoundCheckpoint> found = find_checkpoints(checkpoints_of(options.first));
  ordered_json document{{"checkpoints", ordered_json::array()}};
  std::string text = fmt::format("{:>10} {:>8} {:>14} {:>16} {:>11}  {}\n", "iteration", "saved",
                                 "samples", "tokens", "size", "");
  for (const FoundCheckpoint& one : found) {
    ordered_json row{{"path", one.path}, {"iteration", one.iteration}};
    if (one.manifest) {
      const Manifest& m = *one.manifest;
      row.update({{"sequence", m.sequence},
                  {"run_id", m.run_id},
                  {"samples", m.samples},
                  {"tokens", m.tokens},
                  {"bytes", bytes_of(m)},
                  {"root", m.root}});
      text += fmt::format("{:>10} {:>8} {:>14} {:>16} {:>11}  {}\n", one.iteration, m.sequence,
                          m.samples, m.tokens, bytes_text(bytes_of(m)), printable(one.path, 400));
    } else {
      row["problem"] = one.problem;
      text += fmt::format("{:>10} {}\n", one.iteration, one.problem);
    }
    document["checkpoints"].push_back(row);
  }
  document["set_aside"] = ordered_json::array();
  for (const std::string& path : quarantined_in(checkpoints_of(options.first))) {
    document["set_aside"].push_back(path);
    text += fmt::format("quarantined: {}\n", printable(path, 400));
  }
  fmt::print("{}", options.format == "json" ? json_text(document, 2) + "\n" : text);
  return 0;
}

int inspect(const CheckpointOptions& options) {
  const FoundCheckpoint found = checkpoint_at(options.first);
  const Manifest& m = *found.manifest;
  CheckpointReader reader(found.path, m);
  ordered_json document{{"path", found.path}, {"iteration", m.iteration}, {"sequence", m.sequence},
                        {"run_id", m.run_id}, {"made_by", m.made_by},     {"samples", m.samples},
                        {"tokens", m.tokens}, {"bytes", bytes_of(m)},     {"root", m.root}};
  std::string text = fmt::format("{}\niteration {}, run {}, {} samples, {} tokens, {}, root {}\n",
                                 printable(found.path, 400), m.iteration, printable(m.run_id),
                                 m.samples, m.tokens, bytes_text(bytes_of(m)), m.root);
  for (const auto& [name, value] : m.made_by) {
    text += fmt::format("{}: {}\n", printable(name), printable(value, 200));
  }
  ordered_json& numbers = document["numbers"] = ordered_json::object();
  for (const auto& [name, number] : m.numbers) {
    numbers[name] = json_of(number);
    text += fmt::format("{}: {}\n", printable(name), json_text(numbers[name]));
  }
  ordered_json& tensors = document["tensors"] = ordered_json::object();
  for (const auto& [name, tensor] : m.tensors) {
    ordered_json shape = ordered_json::array();
    for (int d = 0; d < tensor.shape.rank(); ++d) shape.push_back(tensor.shape.dim(d));
    ordered_json row{{"dtype", safetensors_name(tensor.dtype)},
                     {"shape", shape},
                     {"pieces", tensor.shards.size()}};
    std::string sum;
    if (options.hashes) sum = hex64(tensor_sum(reader, name));
    if (options.hashes) row["crc64"] = sum;
    text += fmt::format("{:>5} {:<16} {:>11}  {}  {}\n", safetensors_name(tensor.dtype),
                        tensor.shape.to_string(),
                        counted(static_cast<std::int64_t>(tensor.shards.size()), "shard"), sum,
                        printable(name, 200));
    tensors[name] = std::move(row);
  }
  ordered_json& files = document["files"] = ordered_json::object();
  for (const auto& [name, file] : m.files) {
    files[name] = {{"bytes", file.bytes}, {"blocks", file.blocks.size()}};
    text += fmt::format("{:>12} bytes  {}\n", file.bytes, name);
  }
  fmt::print("{}", options.format == "json" ? json_text(document, 2) + "\n" : text);
  return 0;
}

// The checkpoints of a run, or the single checkpoint at `path`.
std::vector<FoundCheckpoint> all_at(const std::string& path) {
  std::vector<FoundCheckpoint> all;
  try {
    all = find_checkpoints(checkpoints_of(path));
  } catch (const RequestError&) {
    all = {checkpoint_at(path)};
  }
  return all;
}

int verify(const CheckpointOptions& options) {
  std::vector<std::string> problems;
  ordered_json whole = ordered_json::array();
  for (const FoundCheckpoint& one : all_at(options.first)) {
    if (!one.manifest) {
      problems.push_back(one.problem);
      continue;
    }
    const std::vector<std::string> damaged = damages(one.path, *one.manifest);
    std::error_code ignored;
    if (!damaged.empty() && !std::filesystem::exists(one.path, ignored) &&
        one.path != options.first) {
      continue;  // the run has removed it meanwhile
    }
    problems.insert(problems.end(), damaged.begin(), damaged.end());
    if (!damaged.empty()) continue;
    whole.push_back(one.path);
    if (options.format != "json") {
      fmt::print("{}: complete, {}\n", printable(one.path, 400),
                 bytes_text(bytes_of(*one.manifest)));
    }
  }
  if (options.format == "json") {
    fmt::print("{}\n", json_text(ordered_json{{"whole", whole}, {"problems", problems}}, 2));
  }
  if (!problems.empty()) throw RequestError(problems);
  return 0;
}

// Differences are not a failure of the command. It still returns 3 for them, for use in scripts.
int diff(const CheckpointOptions& options) {
  const FoundCheckpoint a = checkpoint_at(options.first), b = checkpoint_at(options.second);
  CheckpointReader first(a.path, *a.manifest), second(b.path, *b.manifest);
  const std::vector<Difference> found = differences(first, second);
  if (options.format == "json") {
    ordered_json list = ordered_json::array();
    for (const Difference& one : found) list.push_back({{"name", one.name}, {"what", one.what}});
    fmt::print("{}\n", json_text(ordered_json{{"equal", found.empty()}, {"differences", list}}, 2));
  } else {
    for (const Difference& one : found) {
      fmt::print("{}: {}\n", printable(one.name, 200), printable(one.what, 200));
    }
    if (found.empty()) fmt::print("equal: {} tensors\n", a.manifest->tensors.size());
  }
  return found.empty() ? 0 : 3;
}

int export_one(const CheckpointOptions& options) {
  if (options.second.ends_with(".gguf")) {
    throw RequestError(
        fmt::format("{}: a directory is written here; `trident export {} {}` writes "
                    "such a file",
                    options.second, options.first, options.second));
  }
  const std::string note =
      export_checkpoint(checkpoint_at(options.first), options.second, options.overwrite);
  if (!note.empty()) print_error(note);
  if (options.format == "json") {
    ordered_json notes = ordered_json::array();
    if (!note.empty()) notes.push_back(note);
    fmt::print("{}\n", json_text(ordered_json{{"wrote", options.second}, {"notes", notes}}));
  } else {
    fmt::print("wrote {}\n", printable(options.second));
  }
  return 0;
}

int prune(const CheckpointOptions& options) {
  const std::string save = checkpoints_of(options.first);
  std::error_code ignored;
  if (const std::string run = read_without_lock(options.first).run();
      !std::filesystem::equivalent(save, options.first, ignored) &&
      (run.empty() || read_without_lock(save).run() != run)) {
    throw RequestError(fmt::format(
        "{}: its config.json leads to {}, but no {} says that this is the same run's; name the "
        "folder of the checkpoints",
        options.first, save, run_file));
  }
  const Pruned pruned = prune_checkpoints(save, options.keep, options.dry_run);
  std::vector<std::string> removed;
  for (const std::int64_t gone : pruned.removed) {
    removed.push_back((std::filesystem::path(save) / checkpoint_name(gone)).string());
  }
  if (options.format == "json") {
    fmt::print("{}\n", json_text(ordered_json{{"dry_run", options.dry_run},
                                              {"removed", removed},
                                              {"not_counted", pruned.damaged}},
                                 2));
    return 0;
  }
  for (const std::string& problem : pruned.damaged) fmt::print("not counted: {}\n", problem);
  for (const std::string& path : removed) {
    fmt::print("{} {}\n", options.dry_run ? "would remove" : "removed", printable(path, 400));
  }
  return 0;
}

}  // namespace

void add_checkpoint(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("checkpoint", "Look at a run's checkpoints");
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* about, const char* first, auto run) {
    auto* sub = command->add_subcommand(name, about);
    auto options = std::make_shared<CheckpointOptions>();
    sub->add_option("path", options->first, first)->required();
    sub->callback([options, run, &action] { action = [options, run] { return run(*options); }; });
    return std::pair(sub, options);
  };
  constexpr auto kRun = "A run: its logging.dir or its checkpoint.save";
  constexpr auto kOne = "A checkpoint's folder, or a run, of which it is the one saved last";
  {
    const auto [sub, options] = add("list", "List the checkpoints of a run", kRun, list);
    add_format_option(*sub, options->format);
  }
  {
    const auto [sub, options] = add("inspect", "Show the contents of a checkpoint", kOne, inspect);
    sub->add_flag("--hashes", options->hashes,
                  "Also the CRC-64 of each full tensor, which is the same in every layout");
    add_format_option(*sub, options->format);
  }
  {
    const auto [sub, options] =
        add("verify", "Read all of a checkpoint, or of all of a run, and compare it with its sums",
            kOne, verify);
    add_format_option(*sub, options->format);
  }
  {
    const auto [sub, options] =
        add("diff", "Compare two checkpoints; exit code 3 where they differ", kOne, diff);
    sub->add_option("other", options->second, "Another one")->required();
    add_format_option(*sub, options->format);
  }
  {
    const auto [sub, options] =
        add("export", "Copy a checkpoint's weights to a Hugging Face directory", kOne, export_one);
    sub->add_option("to", options->second, "The directory")->required();
    sub->add_flag("--overwrite", options->overwrite, "Replace the model that is there");
    add_format_option(*sub, options->format);
  }
  {
    const auto [sub, options] = add("prune", "Remove older checkpoints of a run", kRun, prune);
    sub->add_option("--keep", options->keep.limit, "Number of newest checkpoints that stay")
        ->required()
        ->check(CLI::Range(1, 1000000));
    sub->add_option("--keep-every", options->keep.keep_every,
                    "Checkpoints stay, too, whose iteration is a multiple of this")
        ->check(CLI::Range(0, 1000000000));
    sub->add_flag("--keep-best", options->keep.keep_best,
                  "The checkpoint with the least loss stays, too");
    sub->add_flag("--dry-run", options->dry_run, "Only list the checkpoints that would be removed");
    add_format_option(*sub, options->format);
  }
}

}  // namespace trident::app

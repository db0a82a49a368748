#include "formats/hugging_face/model_directory.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "engine/setup/registry.h"
#include "formats/hugging_face/hugging_face_check.h"

namespace trident {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json parsed_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  json config = parse_json(read_model_config(directory), path);
  if (!config.is_object()) throw RequestError(path + ": needs an object of keys");
  return config;
}

// A value of precision.dtype; "" if config.json has none.
std::string precision_of(const json& hugging_face, const std::string& path) {
  for (const char* key : {"dtype", "torch_dtype"}) {  // the names in transformers 5 and 4
    if (!hugging_face.contains(key) || hugging_face[key].is_null()) continue;
    const json& name = hugging_face[key];
    if (name == "bfloat16") return "bf16";
    if (name == "float16") return "fp16";
    if (name == "float32" || name == "float64") return "fp32";
    throw RequestError(fmt::format("{}: /{}: {}: needs \"float32\", \"bfloat16\" or \"float16\"",
                                   path, key, printable(json_text(name), 80)));
  }
  return "";
}

// The run id in a folder's .trident-run; "" if there is none.
std::string run_named_in(const fs::path& folder) {
  try {
    const json owner = json_or_null(read_file((folder / ".trident-run").string(), 1 << 20));
    return owner.is_object() ? owner.value("run_id", "") : "";
  } catch (const std::exception&) {
    return "";
  }
}

// The folder of the weights of the run whose logs are in `path`. `saved` and `logs` are
// checkpoint.save and logging.dir of its config. If the folder of logs was moved or copied, the
// weights lie at the same relative path from it; the path in the config may belong to another run
// by now. Returns "" if the folder can't be determined.
std::string place_of_weights(const std::string& path, const std::string& saved,
                             const std::string& logs) {
  std::error_code none;
  const fs::path from_logs = fs::path(saved).lexically_normal().lexically_relative(
      (fs::path(logs) / "").lexically_normal().parent_path());
  const fs::path beside =
      from_logs.empty() ? fs::path() : (fs::canonical(path, none) / from_logs).lexically_normal();
  const bool here = fs::equivalent(logs, path, none);
  std::vector<std::string> places;
  if (!here && !beside.empty()) places.push_back(beside.string());
  places.push_back(saved);
  const std::string run = run_named_in(path);
  for (const std::string& place : places) {
    if (fs::is_directory(place, none) && !run.empty() && run_named_in(place) == run) return place;
  }
  // Without run ids, take the likeliest folder that has no other run's id.
  const std::string& likely = places.front();
  const bool unnamed = run.empty() || run_named_in(likely).empty();
  return unnamed && (here || likely != saved) && fs::is_directory(likely, none) ? likely : "";
}

}  // namespace

std::string weights_directory(const std::string& path) {
  if (path.empty()) throw RequestError("\"\" names no directory of weights");
  const json config = parsed_config(path);
  // A run's config has sections; Hugging Face's has none of this name.
  if (!config.contains("training") || !config.contains("checkpoint")) return path;
  const std::string place = path + "/config.json: /checkpoint/save: ";
  const json& checkpoint = config["checkpoint"];
  if (!checkpoint.is_object() || !checkpoint.contains("save") || !checkpoint["save"].is_string()) {
    throw RequestError(place + "this run saved no weights");
  }
  const auto saved = checkpoint["save"].get<std::string>();
  const json::json_pointer dir("/logging/dir");
  const bool is_named = config.contains(dir) && config[dir].is_string();
  const std::string found =
      place_of_weights(path, saved, is_named ? config[dir].get<std::string>() : path);
  if (!found.empty()) return found;
  std::error_code none;
  throw RequestError(fmt::format(
      "{}\"{}\" {} here (the run saved its weights there, seen from where it was started); "
      "name the directory of the weights",
      place, printable(saved),
      fs::is_directory(saved, none) ? "holds none of this run" : "is no directory"));
}

namespace {

const Architecture& architecture_of(const ArchitectureSet& architectures, const json& hugging_face,
                                    const std::string& path) {
  const auto type = hugging_face.find("model_type");
  if (type == hugging_face.end() || !type->is_string()) {
    throw RequestError(path + ": /model_type: is missing; this is not the config of a model");
  }
  const auto found = architectures.find(type->get<std::string>());
  if (found == architectures.end()) {
    throw RequestError(fmt::format("{}: model_type \"{}\" is not one that this program knows", path,
                                   printable(type->get<std::string>())));
  }
  return *found->second;
}

}  // namespace

std::string model_section(const ArchitectureSet& architectures, const std::string& directory) {
  const json hugging_face = parsed_config(directory);
  const std::string path = directory + "/config.json";
  return model_keys(architecture_of(architectures, hugging_face, path).formats(), directory);
}

Config config_of_directory(const ArchitectureSet& architectures, const std::string& directory,
                           bool exact) {
  const std::string path = directory + "/config.json";
  const json hugging_face = parsed_config(directory);
  const Architecture& architecture = architecture_of(architectures, hugging_face, path);
  json model = parse_json(model_keys(architecture.formats(), directory), directory);
  model["make_vocab_size_divisible_by"] = 1;
  const json request{
      {"model", model},
      {"batch", {{"micro_batch_size", 1}, {"global_batch_size", 1}}},
      // No data is read; only the size of the vocabulary matters.
      {"data", {{"train", {{{"path", "-"}}}}, {"tokenizer", {{"type", "file"}, {"path", "-"}}}}},
      {"training", {{"train_iters", 1}}}};
  Registry registry = built_in_registry();
  registry.architectures = architectures;
  Config config;
  try {
    config = parse_config(json_text(request), {}, {.constraints = constraints_of(registry)}).config;
  } catch (const RequestError& error) {
    throw error.at(path + ": ");
  }
  const SafetensorsSet set(directory);
  if (exact) {
    config.model.mtp_num_layers =
        further_layers_in(set, architecture.formats(), config.model.num_layers);
  }
  const DType tensors = check_tensors(set, architecture, architecture.shape(config));
  if (exact && tensors == DType::f64) {
    throw RequestError(directory +
                       ": the weights are F64, which would be rounded; save them as F32 first");
  }
  const std::string declared = precision_of(hugging_face, path);
  config.precision.dtype = !declared.empty() && !exact ? declared
                           : tensors == DType::bf16    ? "bf16"
                           : tensors == DType::f16     ? "fp16"
                                                       : "fp32";
  return config;
}

}  // namespace trident

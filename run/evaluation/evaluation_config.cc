#include "run/evaluation/evaluation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "datasets/token_source.h"
#include "engine/setup/text_setup.h"
#include "formats/hugging_face/hugging_face_check.h"
#include "formats/hugging_face/hugging_face_extras.h"
#include "formats/hugging_face/model_directory.h"

namespace trident {
namespace {

using nlohmann::json;

// The data section of the run's config; null where the directory is not a run's.
json data_of_run(const std::string& directory) {
  const std::string path = directory + "/config.json";
  const json config = parse_json(read_file(path, std::uint64_t{64} << 20), path);
  const bool run = config.contains("training") && config.contains("data");
  return run ? config["data"] : json();
}

// Whether a run trained on texts alone, by the data section of its config.
bool trained_on_texts(const json& data) {
  for (const json& one : data.value("train", json::array())) {
    try {
      if (!is_tokenized(one.at("path").get<std::string>(), false)) return false;
    } catch (const std::exception&) {
      return false;  // the file is gone, or the path is invalid
    }
  }
  return true;
}

json data_section(const EvaluationRequest& request, const std::string& weights,
                  std::int64_t vocab_size) {
  json data = data_of_run(request.directory);
  const bool of_run = data.is_object();
  if (!of_run) data = json::object();
  std::error_code missing;
  const std::string beside_path = weights + "/tokenizer.json";
  const bool beside = std::filesystem::is_regular_file(beside_path, missing);
  const bool of_file = data.value(json::json_pointer("/tokenizer/type"), "") == "file";
  // "byte" is also the default of a run that read token files. Nothing then says which text the
  // tokens stand for.
  const bool bytes = beside   ? has_byte_tokenizer(weights)
                     : of_run ? !of_file && trained_on_texts(data)
                              : vocab_size == 256;
  if (!request.tokenizer.empty()) {
    data["tokenizer"] = {{"type", "file"}, {"path", request.tokenizer}};
  } else if (bytes) {
    data["tokenizer"] = {{"type", "byte"}};
  } else if (beside || !of_file) {
    data["tokenizer"]["type"] = "file";
    data["tokenizer"]["path"] = beside_path;
  }
  if (!request.data.empty()) {
    data["train"] = json::array();
    for (const std::string& path : request.data) data["train"].push_back({{"path", path}});
    for (const char* key : {"validation", "split"}) data.erase(key);
  } else if (!of_run) {
    throw RequestError(fmt::format(
        "{}: isn't a run's directory, whose config names data: give --data", request.directory));
  }
  if (!request.split.empty()) {
    data["split"] = request.split;
    data.erase("validation");
  }
  // These keys get the defaults for this model, not the values of the run.
  for (const char* key : {"sequence_length", "shuffle", "seed"}) data.erase(key);
  return data;
}

}  // namespace

std::string evaluation_config(const EvaluationRequest& request, const std::string& weights) {
  const ArchitectureSet architectures = built_in_architectures();
  const Config single = config_of_directory(architectures, weights);
  const Architecture& family = *architectures.at(single.model.architecture);
  json model = parse_json(model_keys(family.formats(), weights), weights);
  model["make_vocab_size_divisible_by"] = 1;
  // Enough tokens for efficient matrix products, and enough micro-batches for a pipeline.
  const auto sequences = std::max<std::int64_t>(1, 2048 / single.model.max_position_embeddings);
  return json_text(
      json{{"model", model},
           {"precision", {{"dtype", single.precision.dtype}}},
           {"batch", {{"micro_batch_size", sequences}, {"gradient_accumulation_steps", 8}}},
           {"data", data_section(request, weights, single.model.vocab_size)},
           {"training", {{"train_iters", 1}}}});
}

}  // namespace trident

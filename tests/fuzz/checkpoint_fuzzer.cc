// A checkpoint's folder (files_in). Mutations never produce right sums, so the fuzzer first
// corrects the sums of the files and of the manifest.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files/crc64.h"
#include "base/files/json.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_tools.h"
#include "engine/setup/registry.h"
#include "fuzz/fuzzing.h"
#include "run/folders/config_differences.h"

namespace trident::fuzzing {
namespace {

constexpr auto kConfig = "trident/config.json";

// The manifest's text with the sizes and sums of the files in the folder.
std::string summed(const std::string& text, const std::map<std::string, std::string>& files) {
  auto document = ordered_json_or_null(text);
  if (!document.is_object() || !document.contains("files") || !document["files"].is_object()) {
    return text;
  }
  document.erase("root");
  for (auto& [name, value] : document["files"].items()) {
    const auto file = files.find(name);
    if (file == files.end()) continue;
    const std::string bytes =
        name.ends_with(".safetensors") ? safetensors_file(file->second) : file->second;
    value = {{"bytes", bytes.size()}, {"blocks", nlohmann::ordered_json::array()}};
    if (!bytes.empty()) value["blocks"].push_back(hex64(crc64(bytes)));
  }
  std::string written = json_text(document);
  written.pop_back();
  return written + ",\n\"root\": \"" + hex64(crc64(written)) + "\"}\n";
}

const Config& small_config() {
  static const Config config = parse_config(R"({
    "model": {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4},
    "batch": {"global_batch_size": 8},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 32}})",
                                            {}, {.constraints = built_in_constraints()})
                                   .config;
  return config;
}

}  // namespace

void fuzz_checkpoint(std::string_view input) {
  auto files = files_in(input);
  const auto text = files.find(manifest_name);
  if (text == files.end()) return;
  text->second = summed(text->second, files);
  const std::string save = empty_folder(), folder = save + "/" + checkpoint_name(1);
  write_files(folder, files);
  const auto found = newest_first(find_checkpoints(save));
  if (found.empty()) return;
  const Manifest& manifest = *found.front().manifest;
  require(bytes_of(manifest) >= 0, "a checkpoint has no less than 0 bytes");
  CheckpointReader reader(folder, manifest);
  if (manifest.files.contains(kConfig)) {
    accepted([&] { config_differences(reader.text(kConfig), small_config(), kConfig); });
  }
  const bool complete = damages(folder, manifest).empty();
  const bool read = std::ranges::all_of(manifest.tensors, [&](const auto& tensor) {
    return accepted([&] { tensor_sum(reader, tensor.first); });
  });
  require(read == complete, "of a checkpoint without damages each tensor can be read");
  if (complete) {
    CheckpointReader other(folder);
    require(differences(reader, other).empty(), "a checkpoint is like itself");
  }
}

}  // namespace trident::fuzzing

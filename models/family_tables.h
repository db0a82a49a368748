// A family's files as tables of data (llama_files.cc, gpt2_files.cc): the same names serve loading,
// saving, checking and export.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/architecture.h"
#include "models/hugging_face_config.h"

namespace trident {

// Which rows of our parameter a stored tensor holds. Ours stacks queries over keys over values, and
// the gate over the up-projection.
enum class StoredRows : std::uint8_t { all, queries, keys, values, gate, up };

// One tensor of theirs. A "*" is the layer's index.
struct StoredTensor {
  std::string_view ours, hugging_face, gguf;
  StoredRows rows = StoredRows::all;
  bool transposed = false;  // in the Hugging Face directory
};

struct FamilyTables {
  std::string_view model_type;                           // of config.json; llama.cpp's name, too
  std::span<const std::string_view> classes;             // config.json's "architectures"
  std::span<const HuggingFaceKey> keys;                  // of its config class
  std::span<const StoredTensor> tensors;                 // of every parameter
  std::span<const std::string_view> buffers = {};        // that follow from the config
  std::string (*write_config)(const Config&) = nullptr;  // config.json
  std::string (*read_config)(HuggingFaceConfig&) = nullptr;  // model keys, as JSON
  // GGUF's keys behind "MODEL_TYPE.".
  std::vector<std::pair<std::string, std::int64_t>> (*gguf_sizes)(const Config&) = nullptr;
  std::vector<std::pair<std::string, double>> (*gguf_numbers)(const Config&) = nullptr;
};

// An architecture whose files are such tables.
class TabledArchitecture : public Architecture {
 public:
  explicit TabledArchitecture(const FamilyTables& tables) : tables_(tables) {}

  std::vector<HuggingFaceTensor> hugging_face(const TransformerShape&, const std::string& name,
                                              const Shape& global) const override;
  std::string hugging_face_config(const Config&) const override;
  std::string model_config(std::string_view hugging_face_config) const override;
  std::string kept_config(std::string_view hugging_face_config, bool conversion) const override;
  std::vector<std::string> unread_keys(std::string_view hugging_face_config) const override;
  std::optional<GgufForm> gguf(const Config&) const override;
  std::vector<std::string> buffers(std::int64_t layer) const override;

 private:
  HuggingFaceConfig read(std::string_view text) const;

  const FamilyTables& tables_;
};

const FamilyTables& gpt2_files();
const FamilyTables& llama_files();

}  // namespace trident

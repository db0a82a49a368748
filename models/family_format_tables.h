// The names of a family in other programs' files (models/family_formats.h) as tables of data, such
// as llama_formats.cc and gpt2_formats.cc. Loading, saving, checking and export use the same names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "models/family_formats.h"
#include "models/hugging_face_config.h"

namespace trident {

// The rows of our parameter that a stored tensor holds. Our parameters stack queries over keys over
// values, and the gate over the up-projection, also of a shared expert and of each expert.
enum class StoredRows : std::uint8_t {
  all,
  queries,
  keys,
  values,
  gate,
  up,
  shared_gate,
  shared_up,
  expert_gate,
  expert_up,
  expert_down
};

// The names of one stored tensor: ours, Hugging Face's and GGUF's. A "*" is the layer's index, a
// "#" the expert's: the row then stands for a tensor of each expert.
struct StoredTensor {
  std::string_view ours, hugging_face, gguf;
  StoredRows rows = StoredRows::all;
  bool transposed = false;  // in the Hugging Face directory
  // Other Hugging Face names, which are read: of the same tensor, and of one tensor with all rows
  // of our parameter.
  std::string_view also = {}, fused = {};
  // A tensor for each layer that predicts further tokens, which has all rows again. The "*" is its
  // index.
  bool of_further_layers = false;
  // The GGUF tensor of the odd columns; `gguf` then has the even ones.
  std::string_view gguf_other_columns = {};
  // Each expert's matrix is stored (inputs, outputs); GGUF has (outputs, inputs).
  bool inputs_first = false;
};

struct FamilyFormatTables {
  std::string_view model_type;                     // of config.json
  std::span<const std::string_view> classes;       // config.json's "architectures"
  HuggingFaceKeys keys;                            // of transformers' config class
  std::span<const StoredTensor> tensors;           // of every parameter
  std::span<const std::string_view> buffers = {};  // names of buffers that follow from the
                                                   // config
  // Writes config.json, for weights of this dtype.
  std::string (*write_config)(const ModelConfig&, DType) = nullptr;
  std::string (*read_config)(HuggingFaceConfig&) = nullptr;  // the model keys, as JSON
  // The number of layers that predict further tokens; nullptr: none.
  std::int64_t (*further_layers)(HuggingFaceConfig&) = nullptr;
  std::string_view gguf_architecture = {};  // llama.cpp's name; "": model_type
  // llama.cpp rotates neighbouring rows of this family's queries and keys; false: halves, as
  // transformers does.
  bool gguf_interleaves = false;
  // Fills in the sizes, numbers and words of a form whose architecture is set.
  void (*gguf_keys)(const ModelConfig&, GgufForm&) = nullptr;
};

// The formats of a family that are given by tables, which must outlive it.
class TabledFormats final : public FamilyFormats {
 public:
  explicit TabledFormats(const FamilyFormatTables& tables) : tables_(tables) {}

  std::vector<HuggingFaceTensor> hugging_face(const TransformerShape&, const std::string& name,
                                              const Shape& global) const override;
  std::string hugging_face_config(const Config&) const override;
  std::string model_config(std::string_view hugging_face_config) const override;
  std::string kept_config(std::string_view hugging_face_config, bool conversion) const override;
  std::vector<std::string> unread_keys(std::string_view hugging_face_config) const override;
  std::optional<GgufForm> gguf(const Config&) const override;
  std::vector<std::string> buffers(std::int64_t layer) const override;
  std::int64_t further_layers(std::string_view hugging_face_config) const override;

 private:
  HuggingFaceConfig read(std::string_view text) const;

  const FamilyFormatTables& tables_;
};

const FamilyFormatTables& deepseek_v3_formats();
const FamilyFormatTables& gpt2_formats();
const FamilyFormatTables& gpt_oss_formats();
const FamilyFormatTables& llama_formats();
const FamilyFormatTables& mistral_formats();
const FamilyFormatTables& mixtral_formats();
const FamilyFormatTables& olmoe_formats();
const FamilyFormatTables& qwen2_formats();
const FamilyFormatTables& qwen2_moe_formats();
const FamilyFormatTables& qwen3_formats();
const FamilyFormatTables& qwen3_moe_formats();

}  // namespace trident

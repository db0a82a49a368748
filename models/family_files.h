// How other programs store a family of models: Hugging Face directories (config.json and tensors)
// and llama.cpp's GGUF. Whoever reads or writes such files (formats/) asks this, and knows no
// family by its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "models/transformer.h"
#include "settings/config.h"

namespace trident {

// Rows [row_begin, row_begin + rows) of a parameter's global tensor are this Hugging Face tensor,
// which may be stored transposed (GPT-2's Conv1D is (in, out), ours is (out, in)).
struct HuggingFaceTensor {
  std::string name;
  std::int64_t row_begin = 0, rows = 0;
  bool transposed = false;
};

// The names that llama.cpp gives a family, its sizes and its tensors (GGUF).
struct GgufForm {
  // Of a Hugging Face tensor; a "*" in both is the layer. `rotary_heads`: the tensor's rows are
  // those of so many heads, which llama.cpp rotates in pairs of neighbours, transformers in halves.
  struct Name {
    std::string hugging_face, gguf;
    std::int64_t rotary_heads = 0;
  };
  std::string architecture;
  std::vector<std::pair<std::string, std::int64_t>> sizes;  // keys, behind "ARCHITECTURE."
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<Name> names;
};

class FamilyFiles {
 public:
  virtual ~FamilyFiles() = default;

  // The Hugging Face tensors that hold the parameter `name` (of global shape `global`). Error where
  // the family has no such parameter.
  virtual std::vector<HuggingFaceTensor> hugging_face(const TransformerShape&,
                                                      const std::string& name,
                                                      const Shape& global) const = 0;
  // config.json of the Hugging Face directory, and the model keys of a Trident config that such a
  // directory asks for (both JSON texts). RequestError, "/key: value: rule", where it asks for
  // something else than this family computes.
  virtual std::string hugging_face_config(const Config&) const = 0;
  virtual std::string model_config(std::string_view hugging_face_config) const = 0;
  // The keys of a config.json that stay with its weights (HuggingFaceConfig::kept).
  virtual std::string kept_config(std::string_view hugging_face_config, bool conversion) const;
  // Those of them that transformers' class of the family doesn't know (HuggingFaceConfig::unread).
  virtual std::vector<std::string> unread_keys(std::string_view hugging_face_config) const;
  // nullopt: llama.cpp doesn't know the family.
  virtual std::optional<GgufForm> gguf(const Config&) const { return std::nullopt; }
  // Tensors that a directory may hold and that follow from its config: those of a layer, and those
  // of no layer.
  virtual std::vector<std::string> buffers(std::int64_t layer) const;
};

}  // namespace trident

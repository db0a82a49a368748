// The names of a family's tensors and keys in other programs' files: Hugging Face directories
// (config.json and tensors) and llama.cpp's GGUF. The bytes of these files are read and written in
// formats/, which uses this interface and names no family.
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

// A Hugging Face tensor that holds the rows [row_begin, row_begin + rows) of a parameter's global
// tensor. It may be stored transposed (GPT-2's Conv1D is (in, out), ours is (out, in)).
struct HuggingFaceTensor {
  // Another tensor that may hold these rows instead, from its row `row` on: one with another name,
  // or that of all experts of a layer together. Rows number all dimensions but the last.
  struct Place {
    std::string name;
    std::int64_t row = 0;
    std::vector<std::int64_t> shape = {};  // {}: as under the tensor's own name
  };
  std::string name;
  std::int64_t row_begin = 0, rows = 0;
  bool transposed = false;
  std::vector<Place> others = {};
  // All rows of the list's first tensor again: written, but read only to compare them where a
  // directory has it.
  bool repeats = false;
  std::vector<std::int64_t> shape = {};  // {}: its rows, and for matrices its columns
};

// The columns that a GGUF tensor takes of a layer's expert tensor: `first`, first + step, …
// `transposed`: each expert's matrix is stored (inputs, outputs); GGUF has (outputs, inputs).
struct GgufColumns {
  std::int64_t first = 0, step = 1;
  bool transposed = false;
  bool is_all() const { return step == 1 && !transposed; }
};

// llama.cpp's names for a family, its sizes and its tensors (GGUF).
struct GgufForm {
  // The GGUF name of a Hugging Face tensor. A "*" in both stands for the layer. The tensors of a
  // layer's experts have one name: GGUF stores them as one. `rotary_heads` is the number of heads
  // that the tensor's rows belong to, if rotary positions apply to them: llama.cpp rotates
  // neighbouring pairs, transformers rotates halves. 0: no rotary rows.
  struct Name {
    std::string hugging_face, gguf;
    std::int64_t rotary_heads = 0;
    GgufColumns columns = {};
  };
  std::string architecture;
  std::vector<std::pair<std::string, std::int64_t>> sizes;  // keys follow "ARCHITECTURE."
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::pair<std::string, std::string>> words;
  std::vector<std::pair<std::string, bool>> flags = {};
  std::vector<std::string> notes = {};  // for the user: small differences of llama.cpp's results
  // The tensor rope_freqs.weight, by which llama.cpp divides the frequency of each pair; empty:
  // none.
  std::vector<float> rope_factors;
  std::vector<Name> names;
};

class FamilyFormats {
 public:
  virtual ~FamilyFormats() = default;

  // The Hugging Face tensors that hold the parameter `name` of shape `global`. Throws Error if the
  // family has no such parameter.
  virtual std::vector<HuggingFaceTensor> hugging_face(const TransformerShape&,
                                                      const std::string& name,
                                                      const Shape& global) const = 0;
  // hugging_face_config() writes the config.json of a Hugging Face directory. model_config()
  // returns the model keys of a Trident config for a given config.json. Both are JSON texts. Throws
  // RequestError, "/key: value: rule", for a config.json that describes another computation than
  // this family's.
  virtual std::string hugging_face_config(const Config&) const = 0;
  virtual std::string model_config(std::string_view hugging_face_config) const = 0;
  // The keys of a config.json to keep with its weights (HuggingFaceConfig::kept).
  virtual std::string kept_config(std::string_view hugging_face_config, bool conversion) const;
  // The kept keys that transformers' class of the family doesn't know (HuggingFaceConfig::unread).
  virtual std::vector<std::string> unread_keys(std::string_view hugging_face_config) const;
  // nullopt if llama.cpp doesn't support the family. Throws RequestError for a model of the family
  // that llama.cpp would compute otherwise.
  virtual std::optional<GgufForm> gguf(const Config&) const { return std::nullopt; }
  // The names of tensors that a directory may contain but that follow from its config: the buffers
  // of a layer, and the buffers outside any layer.
  virtual std::vector<std::string> buffers(std::int64_t layer) const;
  // The layers behind the model's that a directory with this config.json may have: those of
  // DeepSeek-V3 that predict further tokens. A model with fewer of them leaves out the rest.
  virtual std::int64_t further_layers(std::string_view hugging_face_config) const;
};

}  // namespace trident

// A family of models: which modules stand at the ends and in between, and how its parameters are
// called in a Hugging Face directory. A user's own model is one more of these, in a copy of
// built_in_architectures() (engine/setup/kinds.h); nothing registers itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/module.h"
#include "models/transformer.h"
#include "parallel/tensor/linear.h"
#include "parallel/zero/bucket_layout.h"
#include "settings/config.h"
#include "settings/kinds.h"

namespace trident {

// Rows [row_begin, row_begin + rows) of a parameter's global tensor are this Hugging Face tensor,
// which may be stored transposed (GPT-2's Conv1D is (in, out), ours is (out, in)).
struct HuggingFaceTensor {
  std::string name;
  std::int64_t row_begin = 0, rows = 0;
  bool transposed = false;
};

// What llama.cpp calls a family, its sizes and its tensors (GGUF).
struct GgufForm {
  // Those of a Hugging Face tensor; a "*" in both is the layer. `rotary_heads`: rows of so many
  // heads, which llama.cpp turns in pairs of neighbours, transformers in halves.
  struct Name {
    std::string hugging_face, gguf;
    std::int64_t rotary_heads = 0;
  };
  std::string architecture;
  std::vector<std::pair<std::string, std::int64_t>> sizes;  // keys, behind "ARCHITECTURE."
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<Name> names;
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  // What a config has to know of it; its name is that in the set.
  virtual ModelRules rules() const { return {}; }

  // What a config asks of this family, its own choices filled in.
  virtual TransformerShape shape(const Config&) const = 0;

  // The parts of a decoder by its shape (models/embedding.h, block.h, head.h); a family with other
  // parts overrides them.
  virtual std::unique_ptr<Module> embedding(const TensorParallel&, const TransformerShape&,
                                            Weight table) const;
  virtual std::unique_ptr<Module> layer(const TensorParallel&, const TransformerShape&,
                                        int index) const;
  virtual std::unique_ptr<Module> head(const TensorParallel&, const TransformerShape&,
                                       Weight table) const;
  // Its layers compute the same whatever their index, so that the cost of one is that of each.
  virtual bool layers_alike() const { return false; }

  // The Hugging Face tensors that hold the parameter `name` (of global shape `global`).
  virtual std::vector<HuggingFaceTensor> hugging_face(const TransformerShape&,
                                                      const std::string& name,
                                                      const Shape& global) const = 0;
  // config.json of the Hugging Face directory, and the model keys of a Trident config that such a
  // directory asks for (both JSON texts). RequestError, "/key: value: rule", where it asks for
  // something else than this family computes.
  virtual std::string hugging_face_config(const Config&) const = 0;
  virtual std::string model_config(std::string_view hugging_face_config) const = 0;
  // The keys of a config.json that go on with its weights (HuggingFaceConfig::kept).
  virtual std::string kept_config(std::string_view hugging_face_config, bool conversion) const;
  // Those of them that transformers' class of the family doesn't know (HuggingFaceConfig::unread).
  virtual std::vector<std::string> unread_keys(std::string_view hugging_face_config) const;
  // nullopt: llama.cpp doesn't know it.
  virtual std::optional<GgufForm> gguf(const Config&) const { return std::nullopt; }
  // Tensors that a directory may hold and that follow from its config, of a layer and of none.
  virtual std::vector<std::string> buffers(std::int64_t layer) const;
};

using ArchitectureSet = std::map<std::string, std::shared_ptr<const Architecture>>;
// Those of this library.
ArchitectureSet built_in_architectures();

std::shared_ptr<const Architecture> make_gpt2();
std::shared_ptr<const Architecture> make_llama();

// One rank's share of a model: the modules of each of its stages.
struct Chunk {
  int stage = 0;  // global stage index, 0 … p·v-1
  int first_layer = 0;
  std::vector<std::unique_ptr<Module>> modules;
};

// Builds the chunks with these stage indices. layer_split has the layers of every stage; the
// embedding stands before the first stage's layers, the head after the last one's. A tied embedding
// whose two uses are both here is one parameter with two uses.
std::vector<Chunk> build_chunks(const Architecture&, const TransformerShape&, const TensorParallel&,
                                const std::vector<std::int64_t>& layer_split,
                                const std::vector<int>& stages);

// The parameters of all chunks, each once, in order of use.
std::vector<std::shared_ptr<Parameter>> unique_parameters(const std::vector<Chunk>&);
// The same by module, in the order in which gradients are complete: of each module those that
// backward_weight completes, then those of forward_gradients().
std::vector<ParameterGroup> backward_groups(const std::vector<Chunk>&);

}  // namespace trident

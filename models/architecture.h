// A family of models: which modules stand at the ends and in between. A user's own model is one
// more of these, in a copy of built_in_architectures() (engine/setup/registry.h); nothing registers
// itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/family_files.h"
#include "models/module.h"
#include "models/transformer.h"
#include "parallel/tensor/linear.h"
#include "parallel/zero/bucket_layout.h"
#include "settings/config.h"
#include "settings/constraints.h"

namespace trident {

// The modules of a family; its files are those of the base (models/family_files.h).
class Architecture : public FamilyFiles {
 public:
  // What a config has to know of it; its name is that in the set.
  virtual ModelConstraints constraints() const { return {}; }

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

// A model architecture (a family such as GPT-2 or Llama): its embedding, layers and head. A program
// that links the library adds its own model as one more Architecture in a copy of
// built_in_architectures() (engine/setup/registry.h). There is no self-registration. Architectures
// are const, so threads may share them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/family_formats.h"
#include "models/module.h"
#include "models/transformer.h"
#include "parallel/tensor/linear.h"
#include "parallel/zero/bucket_layout.h"
#include "settings/config.h"
#include "settings/constraints.h"

namespace trident {

class Architecture {
 public:
  virtual ~Architecture() = default;

  // The names of its tensors and keys in other programs' files, for as long as this object lives.
  virtual const FamilyFormats& formats() const = 0;

  // The constraints on a config with this model. Its name is the key in the ArchitectureSet.
  virtual ModelConstraints constraints() const { return {}; }

  // The shape that a config asks for, with the family's own choices filled in.
  virtual TransformerShape shape(const Config&) const = 0;

  // Make the parts of a decoder by its shape (models/embedding.h, block.h, head.h). A family with
  // other parts overrides them. A layer is a Block of two sublayers, the mixer NAME.attention and
  // the feed-forward sublayer NAME.mlp, which may differ from layer to layer.
  virtual std::unique_ptr<Module> embedding(const ParallelContext&, const TransformerShape&,
                                            Weight table) const;
  virtual std::unique_ptr<Module> layer(const ParallelContext&, const TransformerShape&,
                                        int index) const;
  virtual std::unique_ptr<Module> mixer(const ParallelContext&, const TransformerShape&, int index,
                                        const std::string& name) const;
  virtual std::unique_ptr<Module> feed_forward(const ParallelContext&, const TransformerShape&,
                                               int index, const std::string& name) const;
  // Not called for a model with layers that predict further tokens: its head is LanguageModelHead.
  virtual std::unique_ptr<Module> head(const ParallelContext&, const TransformerShape&,
                                       Weight table) const;
  // The statistics of all layers and the head; here the experts' losses and the tokens of each, and
  // the losses of further tokens.
  virtual std::vector<Statistic> statistics(const TransformerShape&) const;
  // Turns the sums of a step of `tokens` tokens into the reported values.
  virtual void derive_statistics(const TransformerShape&, double tokens, StepStatistics&) const;
  // Whether all layers compute the same regardless of index, so that measuring one gives the cost
  // of each.
  virtual bool layers_alike(const TransformerShape&) const { return false; }
};

using ArchitectureSet = std::map<std::string, std::shared_ptr<const Architecture>>;
// The architectures of this library.
ArchitectureSet built_in_architectures();

std::shared_ptr<const Architecture> make_deepseek_v3();
std::shared_ptr<const Architecture> make_gpt2();
std::shared_ptr<const Architecture> make_gpt_oss();
std::shared_ptr<const Architecture> make_llama();
std::shared_ptr<const Architecture> make_mistral();
std::shared_ptr<const Architecture> make_mixtral();
std::shared_ptr<const Architecture> make_olmoe();
std::shared_ptr<const Architecture> make_qwen2();
std::shared_ptr<const Architecture> make_qwen2_moe();
std::shared_ptr<const Architecture> make_qwen3();
std::shared_ptr<const Architecture> make_qwen3_moe();

// The modules of one of a rank's stages.
struct Chunk {
  int stage = 0;  // global stage index, 0 … p·v-1
  int first_layer = 0;
  std::vector<std::unique_ptr<Module>> modules;
};

// Builds the chunks of `stages`. layer_split has the number of layers of every stage. The embedding
// is placed before the first stage's layers, the head after the last stage's, with the layers that
// predict further tokens. All uses of the embedding's table in these chunks share one parameter.
std::vector<Chunk> build_chunks(const Architecture&, const TransformerShape&,
                                const ParallelContext&,
                                const std::vector<std::int64_t>& layer_split,
                                const std::vector<int>& stages);

// A module's parameters, then its buffers.
std::vector<std::shared_ptr<Parameter>> with_buffers(const Module&);
// Those of all chunks, each once, in order of use.
std::vector<std::shared_ptr<Parameter>> unique_parameters(const std::vector<Chunk>&);
// The buffers of all chunks.
ParameterGroup buffers_of(const std::vector<Chunk>&);
// The parameters grouped by module, in the order in which gradients are complete: for each module
// first the parameters that backward_weight completes, then forward_gradients().
std::vector<ParameterGroup> backward_groups(const std::vector<Chunk>&);

}  // namespace trident

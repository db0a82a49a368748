// The weights of the whole model as Hugging Face files hold them, and this rank's part of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/architecture.h"
#include "parallel/state.h"
#include "training/engine/rank_model.h"
#include "training/hugging_face/portions.h"
#include "training/hugging_face/safetensors_layout.h"

namespace trident {

struct WholeWeight {
  std::string name;
  Shape shape;
  std::vector<HuggingFaceTensor> tensors;
};

// Of all stages, in the order of the files.
std::vector<WholeWeight> whole_weights(const RankModel&);

std::vector<TensorDeclaration> declarations(const std::vector<WholeWeight>&, DType dtype);

// Elements [begin, begin + count) of the tensor, which has the placement of a weight of `whole`, to
// where `layout` puts them.
void add_weight(PortionList&, const std::vector<WholeWeight>& whole,
                const SafetensorsSetLayout& layout, const StateTensor&, std::int64_t begin,
                std::int64_t count);

}  // namespace trident

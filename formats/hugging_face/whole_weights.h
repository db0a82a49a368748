// The full weights of the model as Hugging Face files hold them, and this rank's part of them. The
// functions are pure: no communication, no files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/rank_model.h"
#include "formats/hugging_face/portions.h"
#include "formats/hugging_face/safetensors_layout.h"
#include "models/architecture.h"
#include "parallel/state.h"

namespace trident {

struct WholeWeight {
  std::string name;
  Shape shape;
  std::vector<HuggingFaceTensor> tensors;
  bool keeps_fp32 = false;  // whatever the dtype of the model
  bool has_gradient = true;
};

// The weights of all stages, in the order of the files.
std::vector<WholeWeight> whole_weights(const RankModel&);
// The same for an unsharded model.
std::vector<WholeWeight> whole_weights(const Architecture&, const TransformerShape&);

// `dtype`: of the model.
std::vector<TensorDeclaration> declarations(const std::vector<WholeWeight>&, DType dtype);

// One of `parts` equal shares of the slices that this rank holds of a tensor.
struct Share {
  std::int64_t part = 0, parts = 1;
  std::int64_t edge(std::int64_t i, std::int64_t lines) const { return lines * i / parts; }
};

// Adds a share of a tensor, which must have the placement of a weight in `whole`, for its position
// in `layout`. The share is a range of its rows, or of its columns if the files store it
// transposed.
void add_weight(PortionList&, const std::vector<WholeWeight>& whole,
                const SafetensorsSetLayout& layout, const StateTensor&, const Share& = {});

}  // namespace trident

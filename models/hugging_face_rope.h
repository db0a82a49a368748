// Reads the rotary positions of a Hugging Face config.json. transformers 4 has them in rope_theta
// and rope_scaling, transformers 5 in rope_parameters, whose members are the same
// (transformers 5.24, modeling_rope_utils.py).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "models/hugging_face_config.h"

namespace trident {

// The model keys rotary_base and rope_scaling: of rope_theta, at the top level or in
// rope_parameters or rope_scaling, and of the scaling in one of the latter. rope_scaling replaces
// rope_parameters, base included. If that changes anything, both are refused. `positions`:
// max_position_embeddings; `base`: the family's base.
nlohmann::json rotary_positions(HuggingFaceConfig&, std::int64_t positions, double base = 1e4);

}  // namespace trident

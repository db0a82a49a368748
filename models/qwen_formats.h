// Names in other programs' files (models/family_formats.h) that Qwen 2's mixture of experts shares.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "models/hugging_face_config.h"
#include "settings/config.h"

namespace trident {

// Reads use_sliding_window, sliding_window, max_window_layers and layer_types into the model keys.
// `usual`: the layers with a window for a max_window_layers, where layer_types names none.
void read_qwen_window(HuggingFaceConfig&, nlohmann::json& model,
                      const std::function<std::vector<std::int64_t>(std::int64_t)>& usual);
void write_qwen_window(const ModelConfig&, nlohmann::ordered_json& written);

}  // namespace trident

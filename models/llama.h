// Llama (Touvron 2023): RoPE, RMSNorm, SwiGLU, grouped queries (Ainslie 2023). Biases are optional
// (model.attention_bias, model.mlp_bias). Related families derive from it.
#pragma once

#include "models/family_format_tables.h"

namespace trident {

class Llama : public TabledArchitecture {
 public:
  explicit Llama(const FamilyFormatTables& tables = llama_formats()) : TabledArchitecture(tables) {}
  ModelConstraints constraints() const override;
  bool layers_alike(const TransformerShape& shape) const override {
    return shape.window_layers.empty() || std::ssize(shape.window_layers) == shape.layers;
  }
  TransformerShape shape(const Config&) const override;
};

}  // namespace trident

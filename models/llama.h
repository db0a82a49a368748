// Llama (Touvron 2023): RoPE, RMSNorm, SwiGLU, grouped queries (Ainslie 2023). Biases are optional
// (model.attention_bias, model.mlp_bias). Related families derive from it.
#pragma once

#include <algorithm>

#include "models/architecture.h"
#include "models/family_format_tables.h"

namespace trident {

class Llama : public Architecture {
 public:
  explicit Llama(const FamilyFormatTables& tables = llama_formats()) : formats_(tables) {}
  const FamilyFormats& formats() const override { return formats_; }
  ModelConstraints constraints() const override;
  bool layers_alike(const TransformerShape& shape) const override {
    const auto alike = [&](const std::vector<std::int64_t>& layers) {
      const auto below = std::ranges::lower_bound(layers, shape.layers) - layers.begin();
      return below == 0 || below == shape.layers;
    };
    return alike(shape.window_layers) && alike(shape.experts.layers);
  }
  TransformerShape shape(const Config&) const override;

 private:
  TabledFormats formats_;
};

}  // namespace trident

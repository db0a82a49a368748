// Checks a Hugging Face directory before any memory is allocated for its model. The checks read
// config.json and the headers of the weights' files. They read weights only to compare two tensors
// that must be equal.
//
// Any thread may call these functions; they are not collective.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/hugging_face/safetensors.h"
#include "models/architecture.h"
#include "settings/config.h"

namespace trident {

// The text of the directory's config.json. Throws RequestError if it can't be read or is larger
// than a config can be.
std::string read_model_config(const std::string& directory);
// The model keys of a Trident config that this config.json implies, as JSON. Throws RequestErrors
// that name the file.
std::string model_keys(const FamilyFormats&, const std::string& directory);

// Whether the parameter has a row for each entry of the vocabulary.
bool is_of_vocabulary(const std::string& parameter);

// Throws RequestError, with as many problems as fit a screen, unless the set holds every tensor of
// the model in the right shape and in a floating-point type, and no other tensor, except
// buffers that follow from the config. Returns the type that holds all of
// the weights exactly. `entries`: the size of the set's vocabulary if the model's is larger,
// otherwise 0.
DType check_tensors(const SafetensorsSet&, const Architecture&, const TransformerShape&,
                    std::int64_t entries = 0);

// Whether a tensor belongs to one of `further` layers behind the first `layers`; never if `further`
// isn't positive.
bool is_of_further_layer(std::string_view tensor, std::int64_t layers, std::int64_t further);
// The layers that predict further tokens of which the directory's set has tensors, for a model of
// `layers` layers.
std::int64_t further_layers_in(const SafetensorsSet&, const FamilyFormats&, std::int64_t layers);

// The shape under its own name of a tensor with rows of a parameter of shape `global`.
std::vector<std::int64_t> stored_shape(const HuggingFaceTensor&, const Shape& global);

// The tensor of a set that holds the rows of `tensor`, which are rows of a parameter of shape
// `global`, and the first of its rows that does. Throws RequestError if it is missing or has
// another shape or type. `grown`: it may have fewer rows.
struct FoundTensor {
  const SafetensorsEntry* entry = nullptr;
  std::int64_t row = 0;
};
FoundTensor checked_tensor(const SafetensorsSet&, const HuggingFaceTensor& tensor,
                           const Shape& global, bool grown = false);

}  // namespace trident

// What has to hold of a Hugging Face directory before anything is allocated for its model. Reads
// config.json and the headers of the weights' files; of weights only what two tensors have to
// share.
#pragma once

#include <string>

#include "formats/hugging_face/safetensors.h"
#include "models/architecture.h"
#include "settings/config.h"

namespace trident {

// The text of the directory's config.json. RequestError where it is no readable file, or larger
// than a config can be.
std::string read_model_config(const std::string& directory);
// The model keys of a config that it asks for, as JSON; RequestErrors with the file's name.
std::string model_keys(const FamilyFiles&, const std::string& directory);

// Whether each row of the parameter is for an entry of the vocabulary.
bool is_of_vocabulary(const std::string& parameter);

// RequestError, with as many problems as fit a screen, unless the set holds every tensor of the
// model in the right shape and a type of floating-point numbers, and no tensor beside them that
// the model would have to compute with. Buffers that follow from the config are passed over. Gives
// the type that holds all of the weights as they are. `entries`: of its vocabulary, where the
// model's has more.
DType check_tensors(const SafetensorsSet&, const Architecture&, const TransformerShape&,
                    std::int64_t entries = 0);

// The name under which the set holds `tensor`, rows of a parameter of shape `global`. RequestError
// where it is missing, or of another shape or type. `grown`: of fewer rows will do.
std::string checked_name(const SafetensorsSet&, const HuggingFaceTensor& tensor,
                         const Shape& global, bool grown = false);

}  // namespace trident

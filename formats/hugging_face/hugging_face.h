// Loads weights from Hugging Face directories and saves them there (config.json, model.safetensors
// or shards), in any layout and shard by shard: no rank ever holds more than one full tensor. The
// names in them are the family's (models/family_formats.h), the bytes safetensors.h's.
//
// load_hugging_face() is called on every rank but isn't collective. The save functions are
// collective over the world.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "engine/rank_model.h"
#include "engine/stepper.h"
#include "formats/hugging_face/hugging_face_extras.h"
#include "models/architecture.h"
#include "settings/config.h"

namespace trident {

// Throws RequestError unless `directory` exists, its config.json describes the computation of
// `config`'s model (models/hugging_face_config.h) and its files hold exactly that model's tensors
// (formats/hugging_face/hugging_face_check.h). Applies checkpoint.key_mapping and grow_vocabulary.
// Returns the size of the directory's vocabulary if the model's is larger, otherwise 0.
std::int64_t check_hugging_face(const std::string& directory, const Config& config,
                                const Architecture&);

// Sets this rank's slices of every parameter, master weights included, except rows that the
// directory's smaller vocabulary lacks. Every rank reads the data that it needs. Throws
// RequestError if a tensor is missing or has another shape. If `stop` (may be null) becomes true,
// it returns early and the weights are unusable.
void load_hugging_face(RankModel&, const std::string& directory,
                       const std::atomic<bool>* stop = nullptr);

// Collective over the world. World rank 0 writes. The ranks wait for its disk in `files`, a group
// of the world without time-out. Creates the directory if it is missing. Weights have the compute
// dtype. The directory also gets `extras`: those of the directory that the weights came from, and a
// tokenizer.json that the config names. Its contents are replaced as a set once all files are
// written (formats/hugging_face/weights_folder.h).
void save_hugging_face(RankModel&, const ProcessGroup& files, const std::string& directory,
                       const HuggingFaceExtras& = {});

// Saves the gradients of the last step as one safetensors file of fp32 tensors with Hugging Face
// names. Requires Stepper::keep_gradients. Collective, as above. Returns on rank 0 why the file
// couldn't be written, "" otherwise.
std::string save_gradients(const Stepper&, const ProcessGroup& files, const std::string& path);

}  // namespace trident

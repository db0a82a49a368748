// Weights from and to Hugging Face directories (config.json, model.safetensors or shards), in any
// layout, piece by piece: no rank ever holds more than one whole tensor.
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

// RequestError unless `directory` is there, its config.json asks for what the model of `config`
// computes (models/hugging_face_config.h) and its files hold that model's tensors and no others
// (formats/hugging_face/hugging_face_check.h). checkpoint.key_mapping and grow_vocabulary count.
// Gives the entries of its vocabulary where that has grown since; 0 where it hasn't.
std::int64_t check_hugging_face(const std::string& directory, const Config& config,
                                const Architecture&);

// Sets this rank's slices of every parameter, master weights included, but for rows of a vocabulary
// that has grown since. Every rank reads what it needs. RequestError where a tensor is missing or
// of another shape. Gives up, with weights that are of no use, where `stop` (may be null) is set.
void load_hugging_face(RankModel&, const std::string& directory,
                       const std::atomic<bool>* stop = nullptr);

// World rank 0 writes; every rank takes part, and waits for the disk, in `files`, a patient group
// of the world, however long it takes. The directory is made where it isn't there. Weights have the
// compute dtype. A tokenizer.json that the config names goes along, and so do the extras of the
// directory that the weights came from. The directory changes when all is written, from one whole
// set to the other (formats/hugging_face/weights_folder.h).
void save_hugging_face(RankModel&, const ProcessGroup& files, const std::string& directory,
                       const HuggingFaceExtras& = {});

// The gradients of the last step as one safetensors file of fp32 tensors under Hugging Face names;
// needs Stepper::keep_gradients. Every rank takes part, as above. What kept rank 0 from
// writing it, "" where nothing did.
std::string save_gradients(const Stepper&, const ProcessGroup& files, const std::string& path);

}  // namespace trident

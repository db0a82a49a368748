// A Hugging Face directory (files_in): config.json, weights or their index, the companion files,
// and the remains of an unfinished save.
#include <algorithm>
#include <filesystem>

#include "engine/setup/registry.h"
#include "formats/hugging_face/hugging_face_extras.h"
#include "formats/hugging_face/model_directory.h"
#include "formats/hugging_face/safetensors.h"
#include "formats/hugging_face/weights_folder.h"
#include "fuzz/fuzzing.h"
#include "support/temp_dir.h"

namespace trident::fuzzing {

void fuzz_hugging_face(std::string_view input) {
  const std::string around = empty_folder(), folder = around + "/model";
  std::filesystem::create_directory(folder);
  testing::spit(around + "/outside.safetensors", "");
  write_files(folder, files_in(input));
  const ArchitectureSet architectures = built_in_architectures();
  accepted([&] { weights_directory(folder); });
  accepted([&] {
    const SafetensorsSet set(folder);
    for (const SafetensorsEntry* entry : set.tensors()) {
      std::vector<std::byte> bytes(entry->bytes());
      accepted([&] { set.read(entry->name, bytes); });
    }
  });
  Config config;
  for (const bool exact : {false, true}) {
    accepted([&] { config = config_of_directory(architectures, folder, exact); });
  }
  if (config.constraints) {
    for (const bool conversion : {false, true}) {
      accepted([&] {
        with_extras(architecture_of(config)->formats().hugging_face_config(config),
                    read_extras(folder, architecture_of(config)->formats(), conversion));
      });
    }
  }
  run_of_weights(folder);
  set_file_in(folder);
  left_of_old_set(folder);
  if (accepted([&] { check_set_place(folder); })) {
    finish_save(folder);
    require(unfinished_save(folder).empty(), "a save that is finished is no unfinished one");
  }
  require(std::filesystem::exists(around + "/outside.safetensors"),
          "files beside the directory stay");
}

}  // namespace trident::fuzzing

// A safetensors file (safetensors_file).
#include <algorithm>

#include "formats/hugging_face/safetensors.h"
#include "fuzz/fuzzing.h"
#include "support/temp_dir.h"

namespace trident::fuzzing {

void fuzz_safetensors(std::string_view input) {
  const std::string path = empty_folder() + "/model.safetensors";
  const std::string text = safetensors_file(input);
  testing::spit(path, text);
  std::uint64_t bytes = 0;
  accepted([&] {
    const SafetensorsFile file(path);
    for (const SafetensorsEntry& entry : file.tensors()) {
      require(file.find(entry.name) == &entry, "a tensor is found by its name");
      std::vector<std::byte> whole(entry.bytes()), parts(entry.bytes());
      bytes += entry.bytes();
      if (!entry.dtype) continue;
      file.read(entry, whole);
      const auto rows = static_cast<std::uint64_t>(entry.rows());
      const std::uint64_t row = rows == 0 ? 0 : entry.bytes() / rows;
      for (std::uint64_t i = 0; row > 0 && i < rows; ++i) {
        file.read_rows(entry, static_cast<std::int64_t>(i), 1,
                       std::span(parts).subspan(i * row, row));
      }
      require(whole == parts, "a tensor is its rows");
    }
    require(bytes <= text.size(), "tensors are no larger than their file");
  });
}

}  // namespace trident::fuzzing

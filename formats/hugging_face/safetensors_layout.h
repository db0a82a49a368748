// Where the bytes of tensors lie in safetensors files, before one is written: every rank that knows
// the tensors knows the places.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace trident {

// A tensor to be written.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;

  std::uint64_t bytes() const;  // Error if the shape is negative or overflows
};

// One file. Data lies in the order of `tensors`.
struct SafetensorsLayout {
  std::string head;  // what comes before the data
  std::vector<TensorDeclaration> tensors;
  std::vector<std::uint64_t> offsets;  // of each in the file, in bytes
  std::uint64_t bytes = 0;             // of the file
};
// As declared. Error for a name that comes twice, named with `path`.
SafetensorsLayout lay_out(std::vector<TensorDeclaration> tensors,
                          const std::map<std::string, std::string>& metadata,
                          const std::string& path);
// By falling element size, then as declared, so that every tensor is aligned to its element.
std::vector<TensorDeclaration> aligned(std::vector<TensorDeclaration> tensors);

// The weights of a Hugging Face directory: model.safetensors, or, where the tensors need more than
// `max_shard_bytes`, model-00001-of-0000N.safetensors … and their index.
struct SafetensorsSetLayout {
  struct File {
    std::string name;
    SafetensorsLayout layout;
  };
  struct Place {
    std::size_t file = 0;  // of `files`
    std::uint64_t offset = 0;
  };
  std::vector<File> files;
  std::string index;  // the text of model.safetensors.index.json; "" where one file is enough
  std::map<std::string, Place, std::less<>> places;  // by tensor
};
// Each file's metadata is `metadata` and the format's name.
SafetensorsSetLayout lay_out_set(const std::vector<TensorDeclaration>& tensors,
                                 std::uint64_t max_shard_bytes,
                                 const std::map<std::string, std::string>& metadata,
                                 const std::string& directory);

inline constexpr std::uint64_t usual_shard_bytes = std::uint64_t{5} * 1000 * 1000 * 1000;

}  // namespace trident

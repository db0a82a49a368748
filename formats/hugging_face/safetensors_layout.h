// Computes the positions of tensors in safetensors files before a file is written. Every rank that
// knows the tensors computes the same positions. These functions are pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace trident {

// The rows of a tensor of this shape: the elements of a vector, of others all dimensions but the
// last; 1 of a scalar. The largest number if a file's shape has more.
std::int64_t stored_rows(const std::vector<std::int64_t>& shape);

// A tensor to be written.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;

  std::uint64_t bytes() const;  // Error if the shape is negative or overflows
};

// One file. The data lies in the order of `tensors`.
struct SafetensorsLayout {
  std::string head;  // the bytes before the data
  std::vector<TensorDeclaration> tensors;
  std::vector<std::uint64_t> offsets;  // of each tensor in the file, in bytes
  std::uint64_t bytes = 0;             // of the file
};
// Lays out tensors in the given order. Throws Error, which names `path`, if two have the same name.
SafetensorsLayout lay_out(std::vector<TensorDeclaration> tensors,
                          const std::map<std::string, std::string>& metadata,
                          const std::string& path);
// Sorts tensors by decreasing element size, otherwise in the given order, so that each one is
// aligned to its elements.
std::vector<TensorDeclaration> aligned(std::vector<TensorDeclaration> tensors);

// The weights of a Hugging Face directory: model.safetensors, or, if the tensors need more than
// `max_shard_bytes`, model-00001-of-0000N.safetensors … and their index.
struct SafetensorsSetLayout {
  struct File {
    std::string name;
    SafetensorsLayout layout;
  };
  struct Place {
    std::size_t file = 0;  // index in `files`
    std::uint64_t offset = 0;
  };
  std::vector<File> files;
  std::string index;  // text of model.safetensors.index.json; "" if one file is enough
  std::map<std::string, Place, std::less<>> places;  // by tensor
};
// The metadata of each file are `metadata` and the name of the format.
SafetensorsSetLayout lay_out_set(const std::vector<TensorDeclaration>& tensors,
                                 std::uint64_t max_shard_bytes,
                                 const std::map<std::string, std::string>& metadata,
                                 const std::string& directory);

inline constexpr std::uint64_t usual_shard_bytes = std::uint64_t{5} * 1000 * 1000 * 1000;

}  // namespace trident

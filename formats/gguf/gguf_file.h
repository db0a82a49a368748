// The bytes of GGUF files, as llama.cpp reads them: keys and values; the names, shapes and offsets
// of tensors; then their data. Version 3, little-endian, each tensor at a multiple of 32 bytes.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// Nothing here is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/file.h"

namespace trident {

// The types of elements, with the format's numbers. q8_0: 32 consecutive elements of a row share a
// binary16 scale, which comes first, followed by an int8 for each.
enum class GgufType : std::uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };

struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // row-major, as elsewhere in Trident; one to three dimensions
  GgufType type = GgufType::f32;

  std::int64_t row() const { return shape.back(); }  // elements
  std::int64_t rows() const {
    return std::accumulate(shape.begin(), shape.end() - 1, std::int64_t{1}, std::multiplies());
  }
  std::uint64_t row_bytes() const;
  std::uint64_t bytes() const { return row_bytes() * static_cast<std::uint64_t>(rows()); }
};

// Whether rows of `row` elements can have this type.
bool fits(GgufType type, std::int64_t row);

// Converts rows to a tensor's type. Throws Error, which doesn't name the tensor, if a value isn't
// finite in it.
void to_gguf(std::span<const float> rows, GgufType type, std::span<std::byte> out);

// The keys and values before the tensors, in the order in which they are set.
class GgufKeys {
 public:
  void set(std::string_view key, const std::string& value);
  void set(std::string_view key, const char* value) { set(key, std::string(value)); }
  void set(std::string_view key, std::uint32_t value);
  void set(std::string_view key, float value);
  void set(std::string_view key, bool value);
  void set(std::string_view key, const std::vector<std::string>& values);
  void set(std::string_view key, const std::vector<float>& values);
  void set(std::string_view key, const std::vector<std::int32_t>& values);

  std::uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, std::uint32_t type);
  void begin_list(std::string_view key, std::uint32_t type, std::size_t size);

  std::uint64_t count_ = 0;
  std::string bytes_;
};

// Writes one file. It appears under its name with finish().
class GgufWriter {
 public:
  GgufWriter(const std::string& path, const GgufKeys& keys, std::vector<GgufTensor> tensors);

  // Appends rows to tensor `index`, beginning with its first row. The number of rows follows from
  // the number of bytes.
  void append(std::size_t index, std::span<const std::byte> rows);
  // Throws Error if a tensor is incomplete, or if the file exists by now and `replaces` is false.
  void finish(bool replaces);

 private:
  AtomicFile file_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::uint64_t> offsets_;  // of each tensor in the file
  std::vector<std::uint64_t> written_;  // bytes of each tensor
};

}  // namespace trident

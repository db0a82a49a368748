// The bytes of safetensors files: an 8-byte little-endian header length N <= 100,000,000, N bytes
// of JSON that begin with '{', then the data, little-endian and row-major. Offsets are relative to
// the data and tile it: no holes, no overlaps.
// https://github.com/huggingface/safetensors#format
//
// Reader and writer never hold more than the caller's buffer: they handle tensors, or ranges of
// their rows, one by one. A file that violates the format is a RequestError that names the file,
// the tensor and the rule. A failed write is an Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/file.h"
#include "core/dtype.h"
#include "formats/hugging_face/safetensors_layout.h"

namespace trident {

// "F64", "F32", "BF16", "F16", "I64", "I32" or "U8".
std::string_view safetensors_name(DType dtype);

// One tensor of a file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      // as in the file
  std::optional<DType> dtype;  // nullopt for a type that Trident doesn't use (BOOL, F8_E4M3, …)
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes [begin, end) of the data
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
  // The elements of a vector; else all dimensions but the last. A scalar has one row.
  std::int64_t rows() const;
};

// Reads one file by pread. Thread-safe.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // In the order of their offsets.
  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  const SafetensorsEntry* find(std::string_view name) const;  // nullptr if there is none
  const SafetensorsEntry& at(std::string_view name) const;    // RequestError if there is none

  // The offset of the tensor's first byte in the file.
  std::uint64_t offset_of(const SafetensorsEntry& entry) const { return data_begin_ + entry.begin; }

  // Reads the tensor's bytes; out.size() must be its size.
  void read(const SafetensorsEntry& entry, std::span<std::byte> out) const;
  // Reads rows [first_row, first_row + rows); out.size() must be rows times the bytes of a row.
  void read_rows(const SafetensorsEntry& entry, std::int64_t first_row, std::int64_t rows,
                 std::span<std::byte> out) const;

 private:
  ReadFile file_;
  std::uint64_t data_begin_ = 0;
  std::vector<SafetensorsEntry> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

// The weights of a Hugging Face directory: model.safetensors, or model.safetensors.index.json with
// the shards that its weight_map names.
class SafetensorsSet {
 public:
  explicit SafetensorsSet(const std::string& directory);

  // Renames tensors (formats/hugging_face/key_mapping.h). All functions below use the new names.
  void rename(const std::map<std::string, std::string>& mapping);

  const std::string& directory() const { return directory_; }
  std::vector<const SafetensorsEntry*> tensors() const;       // by name
  const SafetensorsEntry* find(std::string_view name) const;  // nullptr if there is none
  const SafetensorsEntry& at(std::string_view name) const;    // RequestError if there is none
  // The path of the shard that holds the tensor, for messages.
  const std::string& file_of(std::string_view name) const;

  void read(std::string_view name, std::span<std::byte> out) const;
  void read_rows(std::string_view name, std::int64_t first_row, std::int64_t rows,
                 std::span<std::byte> out) const;

 private:
  struct Place {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };
  const Place& place(std::string_view name) const;

  std::string directory_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::unique_ptr<SafetensorsEntry>> renamed_;
  std::map<std::string, Place, std::less<>> places_;
};

// Writes one file. All tensors are declared first, then filled in any order, completely or in
// parts, from any thread. Writing a byte twice, or never, is an Error. finish() makes the complete
// file appear under its name. If the writer is destroyed before, it leaves no file.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<TensorDeclaration> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  SafetensorsWriter(const std::string& path, const SafetensorsLayout& layout);

  // bytes.size() must be the tensor's size, or rows times the bytes of a row.
  void write(std::string_view name, std::span<const std::byte> bytes);
  void write_rows(std::string_view name, std::int64_t first_row, std::int64_t rows,
                  std::span<const std::byte> bytes);
  // Writes bytes of one tensor at their offset in the file.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // Throws Error, which names tensor and row, unless every byte of every tensor was written.
  void require_complete() const;
  // Calls require_complete(), then makes the file appear under its name.
  void finish();

 private:
  struct Target {
    TensorDeclaration tensor;
    std::uint64_t offset;                            // in the file
    std::map<std::uint64_t, std::uint64_t> written;  // begin -> end of written ranges of bytes

    std::int64_t rows() const;
    std::uint64_t row_bytes() const;  // 0 if there are no rows
  };
  Target& target(std::string_view name);
  void claim(Target& target, std::uint64_t begin, std::uint64_t end);

  AtomicFile file_;
  std::mutex mutex_;                                         // guards Target::written
  std::vector<Target> targets_;                              // sorted by offset
  std::map<std::string, std::size_t, std::less<>> by_name_;  // index in targets_
};

// Writes the set that lay_out_set() describes into `directory`, which must hold no weights
// (formats/hugging_face/weights_folder.h). finish() puts the shards into place, then the index.
// Any thread may write bytes.
class SafetensorsSetWriter {
 public:
  SafetensorsSetWriter(const std::string& directory, const std::vector<TensorDeclaration>& tensors,
                       std::uint64_t max_shard_bytes = usual_shard_bytes,
                       const std::map<std::string, std::string>& metadata = {});
  SafetensorsSetWriter(const std::string& directory, SafetensorsSetLayout layout);

  void write(std::string_view name, std::span<const std::byte> bytes);
  void write_rows(std::string_view name, std::int64_t first_row, std::int64_t rows,
                  std::span<const std::byte> bytes);
  // Writes bytes of one tensor at their offset in a file of the layout.
  void write_at(std::size_t file, std::uint64_t offset, std::span<const std::byte> bytes);
  void finish();

 private:
  SafetensorsWriter& shard_of(std::string_view name);

  std::string directory_;
  SafetensorsSetLayout layout_;
  std::vector<std::unique_ptr<SafetensorsWriter>> shards_;
};

}  // namespace trident

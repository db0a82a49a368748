// A rank's part of full tensors on its way to files: the position in a file for each of its
// elements, and their bytes, a bounded number at a time.
//
// Each rank has its own list and uses it from one thread at a time. Not collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/files/byte_buffer.h"
#include "core/context.h"
#include "parallel/placement.h"
#include "parallel/state.h"

namespace trident {

// A range of bytes for a file.
struct FileWrite {
  std::size_t file = 0;  // as in FilePlace
  std::uint64_t offset = 0;
  std::size_t begin = 0, count = 0;  // of the portion's bytes
};
struct Portion {
  ByteBuffer bytes;
  std::vector<FileWrite> writes;
};
// `bytes` may point into a tensor.
using PortionSink =
    std::function<void(std::span<const std::byte> bytes, std::span<const FileWrite>)>;

// The position of a full tensor in a file: its element (r, c) lies (r - row) * pitch + (c - column)
// elements after `offset`; if transposed, (c - column) * pitch + (r - row).
struct FilePlace {
  std::size_t file = 0;
  std::uint64_t offset = 0;  // bytes
  std::int64_t row = 0, column = 0, pitch = 0;
  bool transposed = false;
  // Further positions of the same tensor: files and the offsets there.
  std::vector<std::pair<std::size_t, std::uint64_t>> repeated = {};
};

class PortionList {
 public:
  // The most bytes of tensors in a portion, unless a single row has more.
  static constexpr std::size_t most_bytes = std::size_t{16} << 20;
  // Converts a contiguous range of a tensor to the values that its file gets.
  using Convert = std::function<Tensor(const Tensor&)>;

  explicit PortionList(Convert convert = {}) : convert_(std::move(convert)) {}

  // Adds a slice that lies in `state.tensor`, as state.placement.slices() returns it, or a part of
  // such a slice.
  void add(const StateTensor& state, const LocalSlice& slice, const FilePlace& place);

  // Copies the next portion from the tensors' present values; nullopt after the last one. It uses
  // `memory` for the bytes if it is large enough.
  std::optional<Portion> next(Context&, ByteBuffer memory = {});
  // Passes all remaining portions to `sink`, without a copy where possible.
  void each(Context&, const PortionSink& sink);
  // The bytes of the next portion before conversion; 0 after the last one.
  std::int64_t next_bytes() const;
  void rewind() { next_ = 0; }

 private:
  struct Part {  // a portion
    Tensor tensor;
    LocalSlice held;  // `local` counts from the beginning of `tensor`
    FilePlace place;

    std::int64_t span() const { return (held.slice.rows - 1) * held.stride + held.slice.columns; }
    bool lies_apart() const { return span() != held.slice.rows * held.slice.columns; }
  };
  static std::vector<FileWrite> writes_of(const Part&, std::size_t element);
  Portion copy_of(Context&, const Part&, ByteBuffer memory) const;

  Convert convert_;
  std::vector<Part> parts_;
  std::size_t next_ = 0;
};

}  // namespace trident

// A rank's part of whole tensors on its way to files: which of its elements go to which place of
// which file, and their bytes, a bounded number at a time.
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

// Bytes for files.
struct FileWrite {
  std::size_t file = 0;  // as in FilePlace
  std::uint64_t offset = 0;
  std::size_t begin = 0, count = 0;  // of the bytes
};
struct Portion {
  ByteBuffer bytes;
  std::vector<FileWrite> writes;
};
// They may lie in a tensor.
using PortionSink =
    std::function<void(std::span<const std::byte> bytes, std::span<const FileWrite>)>;

// Where the elements of a whole tensor lie in a file: (row, column) of it `pitch` elements times
// (row - this row) behind `offset`, plus column - this column; transposed the other way round.
struct FilePlace {
  std::size_t file = 0;
  std::uint64_t offset = 0;  // bytes
  std::int64_t row = 0, column = 0, pitch = 0;
  bool transposed = false;
};

class PortionList {
 public:
  // Bytes of tensors that a portion has at most, unless a row has more.
  static constexpr std::size_t most_bytes = std::size_t{16} << 20;
  // What goes to the file of a stretch of a tensor.
  using Convert = std::function<Tensor(const Tensor&)>;

  explicit PortionList(Convert convert = {}) : convert_(std::move(convert)) {}

  // A box that lies in `state.tensor`, as state.placement.slices() gives it for all or some of its
  // elements.
  void add(const StateTensor& state, const LocalSlice& slice, const FilePlace& place);

  // The next portion, copied from the tensors as they are now; nothing after the last. `memory` is
  // used for its bytes, where it is enough.
  std::optional<Portion> next(Context&, ByteBuffer memory = {});
  // Gives all that are left to `sink`, without a copy where that can be.
  void each(Context&, const PortionSink& sink);
  // The bytes of the next one before a conversion, 0 after the last.
  std::int64_t next_bytes() const;
  void rewind() { next_ = 0; }

 private:
  struct Part {  // a portion
    Tensor tensor;
    LocalSlice held;  // `local` counted in `tensor`
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

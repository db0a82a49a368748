#include "formats/hugging_face/portions.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace trident {
namespace {

// Writes the columns of rows that lie `stride` elements apart, one after the other. It transposes
// tiles in a small buffer: lines that lie a power of two apart evict each other from the cache.
void transpose(std::span<const std::byte> in, std::int64_t rows, std::int64_t columns,
               std::int64_t stride, std::size_t element, ByteBuffer& out) {
  const auto move = [=]<class Bits>(Bits, const std::byte* from, std::byte* to) {
    constexpr std::int64_t side = 32;
    Bits tile[side][side + 1], line[side];
    for (std::int64_t row = 0; row < rows; row += side) {
      const std::int64_t high = std::min(side, rows - row);
      for (std::int64_t column = 0; column < columns; column += side) {
        const std::int64_t wide = std::min(side, columns - column);
        for (std::int64_t r = 0; r < high; ++r) {
          std::memcpy(tile[r], from + ((row + r) * stride + column) * std::int64_t{sizeof(Bits)},
                      static_cast<std::size_t>(wide) * sizeof(Bits));
        }
        for (std::int64_t c = 0; c < wide; ++c) {
          for (std::int64_t r = 0; r < high; ++r) line[r] = tile[r][c];
          std::memcpy(to + ((column + c) * rows + row) * std::int64_t{sizeof(Bits)}, line,
                      static_cast<std::size_t>(high) * sizeof(Bits));
        }
      }
    }
  };
  if (element == 2) move(std::uint16_t(), in.data(), out.data());
  if (element == 4) move(std::uint32_t(), in.data(), out.data());
  if (element == 8) move(std::uint64_t(), in.data(), out.data());
}

}  // namespace

void PortionList::add(const StateTensor& state, const LocalSlice& slice, const FilePlace& place) {
  // Keep lines of the file together if possible: rows, or columns if the file stores it transposed.
  const bool turned = place.transposed;
  const std::int64_t lines = turned ? slice.slice.columns : slice.slice.rows;
  const std::int64_t length = turned ? slice.slice.rows : slice.slice.columns;
  const auto line_bytes = static_cast<std::size_t>(length) * size_of(state.tensor.dtype());
  const auto most = static_cast<std::int64_t>(
      std::max<std::size_t>(1, most_bytes / std::max<std::size_t>(1, line_bytes)));
  for (std::int64_t line = 0; line < lines; line += most) {
    Part part{state.tensor, slice, place};
    TensorSlice& own = part.held.slice;
    (turned ? own.column : own.row) += line;
    (turned ? own.columns : own.rows) = std::min(most, lines - line);
    part.held.local += line * (turned ? 1 : slice.stride) - state.begin;
    parts_.push_back(std::move(part));
  }
}

std::int64_t PortionList::next_bytes() const {
  if (next_ == parts_.size()) return 0;
  const Part& part = parts_[next_];
  return part.held.slice.rows * part.held.slice.columns *
         static_cast<std::int64_t>(size_of(part.tensor.dtype()));
}

std::vector<FileWrite> PortionList::writes_of(const Part& part, std::size_t element) {
  const TensorSlice& slice = part.held.slice;
  const FilePlace& place = part.place;
  // Lines of the file: rows, or columns if the file stores it transposed.
  const bool turned = place.transposed;
  const std::int64_t lines = turned ? slice.columns : slice.rows;
  const std::int64_t length = turned ? slice.rows : slice.columns;
  const std::int64_t line = turned ? slice.column - place.column : slice.row - place.row;
  const std::int64_t in_line = turned ? slice.row - place.row : slice.column - place.column;
  const std::int64_t count = length == place.pitch ? 1 : lines;
  const std::size_t bytes = static_cast<std::size_t>(lines * length / count) * element;
  std::vector<FileWrite> writes;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::uint64_t>((line + i) * place.pitch + in_line);
    const std::size_t begin = static_cast<std::size_t>(i) * bytes;
    writes.push_back({place.file, place.offset + at * element, begin, bytes});
    for (const auto& [file, offset] : place.repeated) {
      writes.push_back({file, offset + at * element, begin, bytes});
    }
  }
  return writes;
}

Portion PortionList::copy_of(Context& context, const Part& part, ByteBuffer memory) const {
  const TensorSlice& slice = part.held.slice;
  Tensor values = part.tensor.flat(part.held.local, part.span());
  if (convert_) values = convert_(values);
  const std::size_t element = size_of(values.dtype());
  Portion portion{std::move(memory), writes_of(part, element)};
  const auto row_bytes = static_cast<std::size_t>(slice.columns) * element;
  const auto stride = static_cast<std::size_t>(part.held.stride) * element;
  context.read_on_host(values, [&](std::span<const std::byte> in) {
    portion.bytes.resize(static_cast<std::size_t>(slice.rows) * row_bytes);
    if (part.place.transposed) {
      transpose(in, slice.rows, slice.columns, part.held.stride, element, portion.bytes);
      return;
    }
    if (!part.lies_apart()) {
      std::memcpy(portion.bytes.data(), in.data(), in.size());
      return;
    }
    for (std::size_t row = 0; row < static_cast<std::size_t>(slice.rows); ++row) {
      std::memcpy(portion.bytes.data() + row * row_bytes, in.data() + row * stride, row_bytes);
    }
  });
  return portion;
}

std::optional<Portion> PortionList::next(Context& context, ByteBuffer memory) {
  if (next_ == parts_.size()) return std::nullopt;
  return copy_of(context, parts_[next_++], std::move(memory));
}

void PortionList::each(Context& context, const PortionSink& sink) {
  ByteBuffer memory;  // reused by the next portion
  while (next_ < parts_.size()) {
    const Part& part = parts_[next_++];
    if (convert_ || part.lies_apart() || part.place.transposed) {
      Portion portion = copy_of(context, part, std::move(memory));
      sink(portion.bytes, portion.writes);
      memory = std::move(portion.bytes);
    } else {
      const std::vector<FileWrite> writes = writes_of(part, size_of(part.tensor.dtype()));
      context.read_on_host(part.tensor.flat(part.held.local, part.span()),
                           [&](std::span<const std::byte> bytes) { sink(bytes, writes); });
    }
  }
}

}  // namespace trident

#include "training/hugging_face/portions.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace trident {
namespace {

std::vector<std::byte> transposed(const std::vector<std::byte>& in, std::int64_t rows,
                                  std::int64_t columns, std::size_t element) {
  std::vector<std::byte> out(in.size());
  const auto move = [&]<std::size_t size>(std::integral_constant<std::size_t, size>) {
    for (std::int64_t column = 0; column < columns; ++column) {
      for (std::int64_t row = 0; row < rows; ++row) {
        std::memcpy(&out[static_cast<std::size_t>(column * rows + row) * size],
                    &in[static_cast<std::size_t>(row * columns + column) * size], size);
      }
    }
  };
  if (element == 2) move(std::integral_constant<std::size_t, 2>());
  if (element == 4) move(std::integral_constant<std::size_t, 4>());
  if (element == 8) move(std::integral_constant<std::size_t, 8>());
  return out;
}

}  // namespace

void PortionList::add(const StateTensor& state, const HeldBox& box, const FilePlace& place) {
  const auto row_bytes = static_cast<std::size_t>(box.box.columns) * size_of(state.tensor.dtype());
  const auto most = static_cast<std::int64_t>(
      std::max<std::size_t>(1, most_bytes / std::max<std::size_t>(1, row_bytes)));
  for (std::int64_t row = 0; row < box.box.rows; row += most) {
    Part part{state.tensor, box, place};
    part.held.box.row += row;
    part.held.box.rows = std::min(most, box.box.rows - row);
    part.held.local += row * box.stride - state.begin;
    parts_.push_back(std::move(part));
  }
}

std::int64_t PortionList::next_bytes() const {
  if (next_ == parts_.size()) return 0;
  const Part& part = parts_[next_];
  return part.held.box.rows * part.held.box.columns *
         static_cast<std::int64_t>(size_of(part.tensor.dtype()));
}

std::optional<Portion> PortionList::next(Context& context) {
  if (next_ == parts_.size()) return std::nullopt;
  const Part& part = parts_[next_++];
  const Box& box = part.held.box;
  const FilePlace& place = part.place;
  const std::int64_t span = (box.rows - 1) * part.held.stride + box.columns;
  Tensor values = part.tensor.flat(part.held.local, span);
  if (convert_) values = convert_(values);
  const std::size_t element = size_of(values.dtype());
  Portion portion{context.to_host<std::byte>(values), {}};
  const std::size_t row_bytes = static_cast<std::size_t>(box.columns) * element;
  if (span != box.rows * box.columns) {  // rows lie apart
    for (std::int64_t row = 1; row < box.rows; ++row) {
      std::memmove(&portion.bytes[static_cast<std::size_t>(row) * row_bytes],
                   &portion.bytes[static_cast<std::size_t>(row * part.held.stride) * element],
                   row_bytes);
    }
    portion.bytes.resize(static_cast<std::size_t>(box.rows) * row_bytes);
  }
  // Lines of the file: rows, or columns where it has the transposed tensor.
  const bool turned = place.transposed;
  if (turned) portion.bytes = transposed(portion.bytes, box.rows, box.columns, element);
  const std::int64_t lines = turned ? box.columns : box.rows;
  const std::int64_t length = turned ? box.rows : box.columns;
  const std::int64_t line = turned ? box.column - place.column : box.row - place.row;
  const std::int64_t in_line = turned ? box.row - place.row : box.column - place.column;
  const bool at_once = length == place.pitch;
  const std::int64_t writes = at_once ? 1 : lines;
  const std::size_t count = portion.bytes.size() / static_cast<std::size_t>(writes);
  for (std::int64_t i = 0; i < writes; ++i) {
    const auto at = static_cast<std::uint64_t>((line + i) * place.pitch + in_line);
    portion.writes.push_back(
        {place.file, place.offset + at * element, static_cast<std::size_t>(i) * count, count});
  }
  return portion;
}

}  // namespace trident

#include "training/checkpoint/save_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "training/checkpoint/manifest.h"
#include "training/setup/from_config.h"

namespace trident {
namespace {

std::int64_t columns_of(const Shape& shape) {
  return shape.rank() == 1 ? 1 : shape.dim(1);
}

// What this one of those that hold `count` elements writes of them. Which of them begins changes
// from tensor to tensor (`turn`); all cut at rows.
std::pair<std::int64_t, std::int64_t> share_of(const Holder& holder, std::int64_t count,
                                               std::int64_t row, std::int64_t least,
                                               std::int64_t turn) {
  if (holder.index < 0 || count == 0) return {0, 0};
  const std::int64_t parts =
      std::clamp<std::int64_t>(count / std::max<std::int64_t>(1, least), 1, holder.count);
  const std::int64_t part = (holder.index + holder.count - turn % holder.count) % holder.count;
  if (part >= parts) return {0, 0};
  const std::int64_t rows = (count + row - 1) / row;
  const auto edge = [&](std::int64_t i) { return std::min(count, rows * i / parts * row); };
  return {edge(part), edge(part + 1) - edge(part)};
}

std::vector<std::byte> turned_over(const std::vector<std::byte>& in, std::int64_t rows,
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

std::vector<std::int64_t> stored_shape(const HuggingFaceTensor& tensor, const Shape& global) {
  if (global.rank() == 1) return {tensor.rows};
  if (tensor.transposed) return {global.dim(1), tensor.rows};
  return {tensor.rows, global.dim(1)};
}

}  // namespace

std::uint64_t Slice::bytes() const {
  return static_cast<std::uint64_t>(box.rows * box.columns) * size_of(dtype);
}

TensorDeclaration Slice::declaration() const {
  TensorDeclaration tensor{
      fmt::format("{}@{},{}", saved_name(state, parameter), box.row, box.column),
      dtype,
      {box.rows}};
  if (shape.rank() == 2) tensor.shape.push_back(box.columns);
  return tensor;
}

std::vector<WholeWeight> whole_weights(const RankModel& model) {
  std::vector<WholeWeight> list;
  const TensorParallel parallel = tensor_parallel_of(model.config(), model.topology());
  for (int stage = 0; stage < model.total_stages(); ++stage) {
    const auto chunks = build_chunks(model.architecture(), model.shape(), parallel,
                                     model.config().pipeline.layer_split, {stage});
    for (const auto& parameter : unique_parameters(chunks)) {
      const ParameterSpec& spec = parameter->spec();
      if (spec.placement.copy) continue;
      list.push_back(
          {spec.name, spec.placement.global,
           model.architecture().hugging_face(model.shape(), spec.name, spec.placement.global)});
    }
  }
  return list;
}

SaveList::SaveList(const RankModel& model, const State& state, std::uint64_t min_slice,
                   const std::map<std::string, std::string>& metadata)
    : whole_(whole_weights(model)) {
  const DType dtype = model.shape().dtype;
  std::vector<TensorDeclaration> tensors;
  for (const WholeWeight& weight : whole_) {
    for (const HuggingFaceTensor& tensor : weight.tensors) {
      tensors.push_back({tensor.name, dtype, stored_shape(tensor, weight.shape)});
    }
  }
  layout_ = lay_out_set(tensors, usual_shard_bytes, metadata, model.config().checkpoint.save);
  std::int64_t turn = 0;
  for (const StateTensor& tensor : state.tensors) {
    const bool weight = tensor.kind == StateKind::weight;
    const bool needed = tensor.kind == StateKind::optimizer ||
                        (tensor.kind == StateKind::master && dtype != DType::f32);
    if (!weight && !needed) continue;
    const std::int64_t row = columns_of(tensor.placement.local());
    const auto least = static_cast<std::int64_t>(min_slice / size_of(tensor.tensor.dtype()));
    const auto [begin, count] = share_of(tensor.holder, tensor.tensor.numel(), row, least, turn++);
    if (count == 0) continue;
    weight ? add_weight(tensor, begin, count) : add_slices(tensor, begin, count);
  }
}

void SaveList::add_weight(const StateTensor& tensor, std::int64_t begin, std::int64_t count) {
  const auto whole = std::ranges::find(whole_, tensor.parameter->name(), &WholeWeight::name);
  const std::int64_t columns = columns_of(whole->shape);
  for (const HuggingFaceTensor& target : whole->tensors) {
    const SafetensorsSetLayout::Place& at = layout_.places.find(target.name)->second;
    const Place place{.file = at.file,
                      .offset = at.offset,
                      .row = target.row_begin,
                      .pitch = target.transposed ? target.rows : columns,
                      .transposed = target.transposed};
    for (HeldBox held : tensor.placement.boxes(tensor.begin + begin, count)) {
      Box& box = held.box;
      const std::int64_t first = std::max(box.row, target.row_begin);
      const std::int64_t end = std::min(box.row + box.rows, target.row_begin + target.rows);
      if (first >= end) continue;
      held.local += (first - box.row) * held.stride;
      box.row = first;
      box.rows = end - first;
      add(tensor, held, place);
    }
  }
}

void SaveList::add_slices(const StateTensor& tensor, std::int64_t begin, std::int64_t count) {
  for (const HeldBox& held : tensor.placement.boxes(tensor.begin + begin, count)) {
    const Box& box = held.box;
    slices_.push_back({tensor.name, tensor.parameter->name(), tensor.tensor.dtype(),
                       tensor.placement.global, box});
    add(tensor, held,
        {.offset = slice_bytes_, .row = box.row, .column = box.column, .pitch = box.columns});
    slice_bytes_ += slices_.back().bytes();
  }
}

void SaveList::add(const StateTensor& tensor, const HeldBox& held, const Place& place) {
  const auto row_bytes =
      static_cast<std::size_t>(held.box.columns) * size_of(tensor.tensor.dtype());
  const auto most = static_cast<std::int64_t>(
      std::max<std::size_t>(1, portion_bytes / std::max<std::size_t>(1, row_bytes)));
  for (std::int64_t row = 0; row < held.box.rows; row += most) {
    Part part{tensor.tensor, held, place};
    part.held.box.row += row;
    part.held.box.rows = std::min(most, held.box.rows - row);
    part.held.local += row * held.stride - tensor.begin;
    parts_.push_back(std::move(part));
  }
}

std::optional<Portion> SaveList::next(Context& context) {
  if (next_ == parts_.size()) return std::nullopt;
  const Part& part = parts_[next_++];
  const Box& box = part.held.box;
  const Place& place = part.place;
  const std::size_t element = size_of(part.tensor.dtype());
  const std::int64_t span = (box.rows - 1) * part.held.stride + box.columns;
  Portion portion{context.to_host<std::byte>(part.tensor.flat(part.held.local, span)), {}};
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
  if (turned) portion.bytes = turned_over(portion.bytes, box.rows, box.columns, element);
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

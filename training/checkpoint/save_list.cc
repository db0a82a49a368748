#include "training/checkpoint/save_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "training/checkpoint/manifest.h"

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

bool is_saved(const StateTensor& tensor, DType weights) {
  return tensor.kind == StateKind::weight || tensor.kind == StateKind::optimizer ||
         (tensor.kind == StateKind::master && weights != DType::f32);
}

SaveList::SaveList(const RankModel& model, const State& state, std::uint64_t min_slice,
                   const std::map<std::string, std::string>& metadata)
    : dtype_(model.shape().dtype), whole_(whole_weights(model)) {
  layout_ = lay_out_set(declarations(whole_, dtype_), usual_shard_bytes, metadata,
                        model.config().checkpoint.save);
  std::int64_t turn = 0;
  for (const StateTensor& tensor : state.tensors) {
    if (!is_saved(tensor, dtype_)) continue;
    const std::int64_t row = columns_of(tensor.placement.local());
    const auto least = static_cast<std::int64_t>(min_slice / size_of(tensor.tensor.dtype()));
    const auto [begin, count] = share_of(tensor.holder, tensor.tensor.numel(), row, least, turn++);
    if (count == 0) continue;
    if (tensor.kind == StateKind::weight) {
      add_weight(portions_, whole_, layout_, tensor, begin, count);
    } else {
      add_slices(tensor, begin, count);
    }
  }
}

void SaveList::add_slices(const StateTensor& tensor, std::int64_t begin, std::int64_t count) {
  for (const HeldBox& held : tensor.placement.boxes(tensor.begin + begin, count)) {
    const Box& box = held.box;
    slices_.push_back({tensor.name, tensor.parameter->name(), tensor.tensor.dtype(),
                       tensor.placement.global, box});
    portions_.add(tensor, held,
                  {.file = own_file,
                   .offset = slice_bytes_,
                   .row = box.row,
                   .column = box.column,
                   .pitch = box.columns});
    slice_bytes_ += slices_.back().bytes();
  }
}

}  // namespace trident

#include "checkpoint/save_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/fnv1a.h"
#include "checkpoint/manifest.h"

namespace trident {
namespace {

// A floating-point number whose exponent bits are all ones is infinite or NaN. If only the exponent
// bits are kept and their lowest one is added, just these numbers carry into the sign bit. A word
// holds several numbers, and no carry reaches its neighbour.
template <class Bits>
bool all_finite(std::span<const std::byte> bytes, Bits exponent) {
  using Word = std::uint64_t;
  constexpr Word each = ~Word{0} / static_cast<Bits>(~Bits{0});
  constexpr Word sign = each << (8 * sizeof(Bits) - 1);
  const Word mask = each * exponent, lowest = each * static_cast<Bits>(exponent & (~exponent + 1));
  Word found = 0, numbers = 0;
  while (bytes.size() >= sizeof numbers) {
    std::memcpy(&numbers, bytes.data(), sizeof numbers);
    found |= (numbers & mask) + lowest;
    bytes = bytes.subspan(sizeof numbers);
  }
  numbers = 0;
  if (!bytes.empty()) std::memcpy(&numbers, bytes.data(), bytes.size());
  found |= (numbers & mask) + lowest;
  return (found & sign) == 0;
}

bool all_finite(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return all_finite<std::uint64_t>(bytes, 0x7ff0'0000'0000'0000);
    case DType::f32:
      return all_finite<std::uint32_t>(bytes, 0x7f80'0000);
    case DType::bf16:
      return all_finite<std::uint16_t>(bytes, 0x7f80);
    case DType::f16:
      return all_finite<std::uint16_t>(bytes, 0x7c00);
    default:
      return true;
  }
}

}  // namespace

std::uint64_t Slice::bytes() const {
  return static_cast<std::uint64_t>(region.rows * region.columns) * size_of(dtype);
}

TensorDeclaration Slice::declaration() const {
  TensorDeclaration tensor{
      fmt::format("{}@{},{}", saved_name(state, parameter), region.row, region.column),
      dtype,
      {region.rows}};
  if (shape.rank() > 1) tensor.shape.push_back(region.columns);
  return tensor;
}

bool is_saved(const StateTensor& tensor, DType weights) {
  return tensor.kind == StateKind::weight || tensor.kind == StateKind::optimizer ||
         tensor.kind == StateKind::stashed ||
         (tensor.kind == StateKind::master && weights != DType::f32);
}

std::optional<Share> share_of(const StateTensor& tensor, const Holder& holder,
                              std::uint64_t least) {
  const std::int64_t bytes = tensor.tensor.bytes();
  if (holder.index < 0 || bytes == 0) return std::nullopt;
  const std::int64_t count = holder.count;
  const auto turn = static_cast<std::int64_t>(
      fnv1a(saved_name(tensor.name, tensor.parameter->name())) % static_cast<std::uint64_t>(count));
  const auto enough = static_cast<std::int64_t>(static_cast<std::uint64_t>(bytes) /
                                                std::max<std::uint64_t>(1, least));
  const Share share{.part = (holder.index + count - turn) % count,
                    .parts = std::clamp<std::int64_t>(enough, 1, count)};
  return share.part < share.parts ? std::optional(share) : std::nullopt;
}

std::int64_t largest_part(
    const State& state, DType weights, std::uint64_t least,
    const std::function<std::int64_t(const StateTensor&, const Share&)>& bytes) {
  std::int64_t sharers = 1, most = 0;
  for (const StateTensor& tensor : state.tensors) {
    sharers = std::max<std::int64_t>(sharers, tensor.holder.count);
  }
  for (std::int64_t sharer = 0; sharer < sharers; ++sharer) {
    std::int64_t sum = 0;
    for (const StateTensor& tensor : state.tensors) {
      if (!is_saved(tensor, weights)) continue;
      Holder holder = tensor.holder;
      if (holder.index >= 0) holder.index = static_cast<int>(sharer % holder.count);
      if (const auto share = share_of(tensor, holder, least)) sum += bytes(tensor, *share);
    }
    most = std::max(most, sum);
  }
  return most;
}

SaveList::SaveList(const RankModel& model, const State& state, std::uint64_t min_slice,
                   const std::map<std::string, std::string>& metadata, Weights weights)
    : dtype_(model.shape().dtype) {
  if (weights == Weights::full) {
    whole_ = whole_weights(model);
    layout_ = lay_out_set(declarations(whole_, dtype_), usual_shard_bytes, metadata,
                          model.config().checkpoint.save);
  }
  for (const StateTensor& tensor : state.tensors) {
    if (!is_saved(tensor, dtype_)) continue;
    const std::optional<Share> share = share_of(tensor, tensor.holder, min_slice);
    if (!share) continue;
    if (tensor.kind == StateKind::weight && weights == Weights::full) {
      add_weight(portions_, whole_, layout_, tensor, *share);
    } else {
      add_slices(tensor, *share);
    }
  }
}

DType SaveList::dtype_at(const FileWrite& write) const {
  const auto before = [&](const std::vector<std::uint64_t>& offsets) {
    return static_cast<std::size_t>(std::ranges::upper_bound(offsets, write.offset) -
                                    offsets.begin()) -
           1;
  };
  if (is_own(write)) return slices_[before(slice_offsets_)].dtype;
  const SafetensorsLayout& file = layout_.files[write.file].layout;
  return file.tensors[before(file.offsets)].dtype;
}

void SaveList::require_finite(std::span<const std::byte> bytes, const FileWrite& write) const {
  if (write.file != own_file && !all_finite(bytes, dtype_at(write))) {
    throw Error("the weights are not finite");
  }
}

void SaveList::add_slices(const StateTensor& tensor, const Share& share) {
  for (LocalSlice held : tensor.placement.slices(tensor.begin, tensor.tensor.numel())) {
    TensorSlice& region = held.slice;
    const std::int64_t first = share.edge(share.part, region.rows);
    region.rows = share.edge(share.part + 1, region.rows) - first;
    if (region.rows == 0) continue;
    region.row += first;
    held.local += first * held.stride;
    slices_.push_back({tensor.name, tensor.parameter->name(), tensor.tensor.dtype(),
                       tensor.placement.global, region});
    portions_.add(tensor, held,
                  {.file = tensor.kind == StateKind::weight ? own_weights : own_file,
                   .offset = slice_bytes_,
                   .row = region.row,
                   .column = region.column,
                   .pitch = region.columns});
    slice_offsets_.push_back(slice_bytes_);
    slice_bytes_ += slices_.back().bytes();
  }
}

}  // namespace trident

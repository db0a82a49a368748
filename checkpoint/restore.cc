#include "checkpoint/restore.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "engine/optimizer/optimizer.h"
#include "formats/hugging_face/hugging_face_check.h"
#include "parallel/parameter.h"

namespace trident {
namespace {

std::string manifest_of(const CheckpointReader& reader) {
  return fmt::format("{}/{}", reader.folder(), manifest_name);
}

// Converts elements of another floating-point type to fp32.
std::vector<std::byte> as_f32(DType dtype, const std::vector<std::byte>& bytes) {
  const std::size_t count = bytes.size() / size_of(dtype);
  std::vector<std::byte> out(count * sizeof(float));
  const auto convert = [&]<class T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, &bytes[i * sizeof(T)], sizeof(T));
      const auto wide = static_cast<float>(value);
      std::memcpy(&out[i * sizeof(float)], &wide, sizeof(float));
    }
  };
  if (dtype == DType::bf16) convert(BFloat16{});
  if (dtype == DType::f16) convert(Float16{});
  return out;
}

// The checkpoint's tensor from which `into` is restored, and its name there.
std::pair<std::string, const SavedTensor*> source_of(const StateTensor& into,
                                                     const CheckpointReader& reader) {
  std::string name = saved_name(into.name, into.parameter->name());
  const SavedTensor* saved = reader.find(name);
  // A moving average that the run hadn't kept starts from the weights.
  const bool average = into.kind == StateKind::optimizer && into.name == average_name;
  if (saved == nullptr && average) {
    name = saved_name("master", into.parameter->name());
    saved = reader.find(name);
  }
  if (saved == nullptr && (average || into.kind == StateKind::master)) {
    name = saved_name("weight", into.parameter->name());
    saved = reader.find(name);
  }
  if (saved == nullptr) {
    throw MismatchedState(fmt::format(
        "{}: no tensor \"{}\"{}", manifest_of(reader), printable(name),
        into.kind == StateKind::optimizer
            ? "; the weights alone can be loaded (checkpoint.exclude_from_loading: [\"optimizer\"])"
            : ""));
  }
  return {name, saved};
}

// Whether `saved` has `entries` rows, one for each entry of its vocabulary, and `into` has more.
bool fewer_rows(const Shape& saved, const StateTensor& into, std::int64_t entries) {
  const Shape& whole = into.placement.global;
  return entries > 0 && is_of_vocabulary(into.parameter->name()) && saved.rank() == whole.rank() &&
         saved.dim(0) == entries && whole.dim(0) > entries && whole.with(0, entries) == saved;
}

// Reads 16-bit elements as fp32.
void read_wider(CheckpointReader& reader, const std::string& name, const SavedTensor& saved,
                const TensorSlice& slice, std::int64_t stride, std::span<std::byte> out) {
  const auto columns = static_cast<std::size_t>(slice.columns);
  std::vector<std::byte> narrow(static_cast<std::size_t>(slice.rows) * columns *
                                size_of(saved.dtype));
  reader.read(name, slice, slice.columns, narrow);
  const std::vector<std::byte> wide = as_f32(saved.dtype, narrow);
  for (std::size_t row = 0; row < static_cast<std::size_t>(slice.rows); ++row) {
    std::memcpy(&out[row * static_cast<std::size_t>(stride) * sizeof(float)],
                &wide[row * columns * sizeof(float)], columns * sizeof(float));
  }
}

// The saved tensor from which a tensor of the state is restored.
struct TensorSource {
  const StateTensor* into = nullptr;
  std::string name;  // in the checkpoint
  const SavedTensor* saved = nullptr;
  bool widens = false;
  bool grown = false;  // it has rows that the checkpoint lacks
};

TensorSource checked_source(const StateTensor& into, const CheckpointReader& reader,
                            std::int64_t entries) {
  const auto [name, saved] = source_of(into, reader);
  const bool widens = into.tensor.dtype() == DType::f32 &&
                      (saved->dtype == DType::bf16 || saved->dtype == DType::f16);
  const bool grown = fewer_rows(saved->shape, into, entries);
  if ((saved->shape != into.placement.global && !grown) ||
      (saved->dtype != into.tensor.dtype() && !widens)) {
    throw MismatchedState(fmt::format(
        "{}: tensor \"{}\" has shape {} and type {}, the run needs {} and {}", manifest_of(reader),
        printable(name), saved->shape.to_string(), name_of(saved->dtype),
        into.placement.global.to_string(), name_of(into.tensor.dtype())));
  }
  return {&into, name, saved, widens, grown};
}

// A slice of it that lies in a single shard, and its position in the tensor.
struct Part {
  std::pair<std::string, std::uint64_t> place;  // in the files
  const TensorSource* from = nullptr;
  TensorSlice slice;
  std::int64_t at = 0, stride = 0;  // in elements of the tensor

  std::int64_t elements() const { return (slice.rows - 1) * stride + slice.columns; }
};

std::vector<Part> parts_of(const TensorSource& from, CheckpointReader& reader) {
  std::vector<Part> parts;
  const StateTensor& into = *from.into;
  for (const LocalSlice& held : into.placement.slices(into.begin, into.tensor.numel())) {
    TensorSlice slice = held.slice;
    slice.rows = std::min(slice.rows, from.saved->shape.matrix_rows() - slice.row);
    if (slice.rows <= 0) continue;
    for (const CheckpointReader::Part& part : reader.parts_of(from.name, slice)) {
      const std::int64_t at = held.local - into.begin + (part.slice.row - slice.row) * held.stride +
                              part.slice.column - slice.column;
      parts.push_back({part.place, &from, part.slice, at, held.stride});
    }
  }
  return parts;
}

std::int64_t elements_of(const std::vector<Part>& parts) {
  std::int64_t elements = 0;
  for (const Part& part : parts) elements += part.slice.rows * part.slice.columns;
  return elements;
}

// `out` begins at the part's first element.
void read_part(CheckpointReader& reader, const Part& part, std::span<std::byte> out) {
  if (part.from->widens) {
    read_wider(reader, part.from->name, *part.from->saved, part.slice, part.stride, out);
  } else {
    reader.read(part.from->name, part.slice, part.stride, out);
  }
}

// `out` is the full tensor.
void read_parts(CheckpointReader& reader, const std::vector<Part>& parts,
                std::span<std::byte> out) {
  for (const Part& part : parts) {
    const std::size_t element = size_of(part.from->into->tensor.dtype());
    read_part(reader, part, out.subspan(static_cast<std::size_t>(part.at) * element));
  }
}

void restore_tensor(Context& context, const TensorSource& from, CheckpointReader& reader,
                    const std::vector<Part>& parts) {
  const Tensor& tensor = from.into->tensor;
  if (!from.grown) {
    return context.write_on_host(tensor, [&](std::span<std::byte> out) {
      // Padding belongs to no part.
      if (elements_of(parts) < tensor.numel()) std::ranges::fill(out, std::byte{0});
      read_parts(reader, parts, out);
    });
  }
  // The new rows of weights keep their values; those of states are 0.
  std::vector<std::byte> values(static_cast<std::size_t>(tensor.bytes()));
  if (from.into->kind != StateKind::optimizer) context.copy_to_host(values, tensor);
  context.synchronize();
  read_parts(reader, parts, values);
  context.copy_from_host(tensor, values);
}

// For a state in host memory: reads all parts of all tensors in the files' order. So no block is
// read twice, whatever the sharding of the saved tensors.
void restore_in_place(Context& context, const std::vector<TensorSource>& sources,
                      CheckpointReader& reader) {
  std::vector<Part> all;
  for (const TensorSource& from : sources) {
    const std::vector<Part> parts = parts_of(from, reader);
    const Tensor& tensor = from.into->tensor;
    if (from.grown) {
      restore_tensor(context, from, reader, parts);
      continue;
    }
    if (elements_of(parts) < tensor.numel()) {
      context.write_on_host(tensor,
                            [](std::span<std::byte> out) { std::ranges::fill(out, std::byte{0}); });
    }
    all.insert(all.end(), parts.begin(), parts.end());
  }
  std::ranges::stable_sort(all, {}, &Part::place);
  for (const Part& part : all) {
    context.write_on_host(part.from->into->tensor.flat(part.at, part.elements()),
                          [&](std::span<std::byte> out) { read_part(reader, part, out); });
  }
}

void restore_number(const StateNumber& into, const CheckpointReader& reader) {
  const auto& numbers = reader.manifest().numbers;
  const auto saved = numbers.find(into.name);
  if (saved == numbers.end()) {
    throw MismatchedState(
        fmt::format("{}: /numbers: no \"{}\"", manifest_of(reader), printable(into.name)));
  }
  const bool whole = std::holds_alternative<std::int64_t*>(into.value);
  if (whole != std::holds_alternative<std::int64_t>(saved->second)) {
    throw MismatchedState(fmt::format("{}: /numbers/{}: needs a {}", manifest_of(reader),
                                      printable(into.name), whole ? "whole number" : "fraction"));
  }
  const double value = std::visit([](auto n) { return static_cast<double>(n); }, saved->second);
  if (!(value >= into.least && value <= into.most)) {
    throw MismatchedState(fmt::format("{}: /numbers/{}: needs a number from {} to {}",
                                      manifest_of(reader), printable(into.name), into.least,
                                      into.most));
  }
  if (whole) {
    *std::get<std::int64_t*>(into.value) = std::get<std::int64_t>(saved->second);
  } else {
    *std::get<double*>(into.value) = std::get<double>(saved->second);
  }
}

// Whether a tensor is read: it doesn't follow from other states, and `taken` includes it.
bool is_restored(const StateTensor& tensor, const TakenParts& taken) {
  const bool follows = tensor.kind == StateKind::weight || tensor.kind == StateKind::gradient;
  return !follows && (tensor.kind != StateKind::optimizer || taken.optimizer);
}

bool meet(const TensorSlice& a, const TensorSlice& b) {
  return a.row < b.row + b.rows && b.row < a.row + a.rows && a.column < b.column + b.columns &&
         b.column < a.column + a.columns;
}

}  // namespace

std::set<std::string> needed_files(const State& state, const Manifest& manifest,
                                   const TakenParts& taken) {
  std::set<std::string> files;
  for (const StateTensor& tensor : state.tensors) {
    if (!is_restored(tensor, taken)) continue;
    auto saved = manifest.tensors.find(saved_name(tensor.name, tensor.parameter->name()));
    if (saved == manifest.tensors.end()) {
      saved = manifest.tensors.find(saved_name("weight", tensor.parameter->name()));
    }
    if (saved == manifest.tensors.end()) continue;
    for (const LocalSlice& held : tensor.placement.slices(tensor.begin, tensor.tensor.numel())) {
      for (const SavedShard& shard : saved->second.shards) {
        if (meet(shard.slice, held.slice)) files.insert(shard.file);
      }
    }
  }
  return files;
}

void restore_state(Context& context, State& state, CheckpointReader& reader,
                   const TakenParts& taken) {
  std::vector<TensorSource> sources;
  for (const StateTensor& tensor : state.tensors) {
    if (!is_restored(tensor, taken) || tensor.tensor.numel() == 0) continue;
    sources.push_back(checked_source(tensor, reader, taken.entries));
  }
  if (context.device().kind() == DeviceKind::cpu) {
    restore_in_place(context, sources, reader);
  } else {
    for (const TensorSource& from : sources) {
      std::vector<Part> parts = parts_of(from, reader);
      std::ranges::stable_sort(parts, {}, &Part::place);
      restore_tensor(context, from, reader, parts);
    }
  }
  const bool scaled = std::ranges::any_of(reader.manifest().tensors, [](const auto& tensor) {
    return tensor.first.starts_with("weight/") && tensor.second.dtype == DType::f16;
  });
  std::int64_t whole = 0;  // receives numbers that are checked but not used
  double fraction = 0;
  for (StateNumber number : state.numbers) {
    if (!taken.optimizer) break;
    if (!scaled && number.name.starts_with("loss_scale.")) {
      const bool is_whole = std::holds_alternative<std::int64_t*>(number.value);
      if (is_whole) number.value = &whole;
      if (!is_whole) number.value = &fraction;
    }
    restore_number(number, reader);
  }
  context.synchronize();
}

}  // namespace trident

#include "training/checkpoint/restore.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <variant>

#include "core/error.h"
#include "core/printable.h"
#include "parallel/parameter.h"

namespace trident {
namespace {

std::string manifest_of(const CheckpointReader& reader) {
  return fmt::format("{}/{}", reader.folder(), manifest_name);
}

// fp32 values of `bytes` elements of another floating-point type.
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

void restore_tensor(Context& context, const StateTensor& into, CheckpointReader& reader) {
  if (into.tensor.numel() == 0) return;
  std::string name = saved_name(into.name, into.parameter->name());
  const SavedTensor* saved = reader.find(name);
  if (saved == nullptr && into.kind == StateKind::master) {
    name = saved_name("weight", into.parameter->name());
    saved = reader.find(name);
  }
  if (saved == nullptr) {
    throw RequestError(fmt::format("{}: no tensor \"{}\"", manifest_of(reader), printable(name)));
  }
  const bool widens = into.tensor.dtype() == DType::f32 &&
                      (saved->dtype == DType::bf16 || saved->dtype == DType::f16);
  if (saved->shape != into.placement.global || (saved->dtype != into.tensor.dtype() && !widens)) {
    throw RequestError(fmt::format(
        "{}: tensor \"{}\" has shape {} and type {}, the run needs {} and {}", manifest_of(reader),
        printable(name), saved->shape.to_string(), name_of(saved->dtype),
        into.placement.global.to_string(), name_of(into.tensor.dtype())));
  }
  const std::size_t element = size_of(saved->dtype);
  // Padding is in no box and stays 0.
  std::vector<std::byte> values(static_cast<std::size_t>(into.tensor.numel()) * element);
  for (const HeldBox& held : into.placement.boxes(into.begin, into.tensor.numel())) {
    const auto at = static_cast<std::size_t>(held.local - into.begin) * element;
    reader.read(name, held.box, held.stride, std::span(values).subspan(at));
  }
  if (widens) values = as_f32(saved->dtype, values);
  context.copy_from_host(into.tensor, values);
}

void restore_number(const StateNumber& into, const CheckpointReader& reader) {
  const auto& numbers = reader.manifest().numbers;
  const auto saved = numbers.find(into.name);
  if (saved == numbers.end()) {
    throw RequestError(
        fmt::format("{}: /numbers: no \"{}\"", manifest_of(reader), printable(into.name)));
  }
  const bool whole = std::holds_alternative<std::int64_t*>(into.value);
  if (whole != std::holds_alternative<std::int64_t>(saved->second)) {
    throw RequestError(fmt::format("{}: /numbers/{}: needs a {}", manifest_of(reader),
                                   printable(into.name), whole ? "whole number" : "fraction"));
  }
  const double value = std::visit([](auto n) { return static_cast<double>(n); }, saved->second);
  if (!(value >= into.least && value <= into.most)) {
    throw RequestError(fmt::format("{}: /numbers/{}: needs a number from {} to {}",
                                   manifest_of(reader), printable(into.name), into.least,
                                   into.most));
  }
  if (whole) {
    *std::get<std::int64_t*>(into.value) = std::get<std::int64_t>(saved->second);
  } else {
    *std::get<double*>(into.value) = std::get<double>(saved->second);
  }
}

}  // namespace

void restore_state(Context& context, State& state, CheckpointReader& reader) {
  for (const StateTensor& tensor : state.tensors) {
    const bool kept = tensor.kind == StateKind::master || tensor.kind == StateKind::optimizer ||
                      tensor.kind == StateKind::stashed;
    if (kept) restore_tensor(context, tensor, reader);
  }
  for (const StateNumber& number : state.numbers) restore_number(number, reader);
  context.synchronize();
}

}  // namespace trident

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "core/error.h"
#include "training/hugging_face/hugging_face.h"
#include "training/hugging_face/hugging_face_check.h"
#include "training/hugging_face/safetensors.h"

namespace trident {
namespace {

std::vector<float> to_floats(DType dtype, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / size_of(dtype));
  const auto convert = [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = static_cast<float>(value);
    }
  };
  switch (dtype) {
    case DType::f64:
      convert(double{});
      break;
    case DType::f32:
      convert(float{});
      break;
    case DType::bf16:
      convert(BFloat16{});
      break;
    case DType::f16:
      convert(Float16{});
      break;
    default:
      throw RequestError("weights must be floating point, got " + std::string(name_of(dtype)));
  }
  return values;
}

// Rows [begin, end) of our (rows, columns) view of one Hugging Face tensor.
std::vector<float> read_rows(const SafetensorsSet& set, const HuggingFaceTensor& tensor,
                             const Shape& global, std::int64_t begin, std::int64_t end) {
  const std::string name = checked_name(set, tensor, global);
  const SafetensorsEntry& entry = set.at(name);
  const std::int64_t columns = global.rank() == 1 ? 1 : global.dim(1);
  if (!tensor.transposed) {
    std::vector<std::byte> bytes(static_cast<std::size_t>((end - begin) * columns) *
                                 size_of(*entry.dtype));
    set.read_rows(name, begin, end - begin, bytes);
    return to_floats(*entry.dtype, bytes);
  }
  std::vector<std::byte> bytes(entry.bytes());
  set.read(name, bytes);
  const std::vector<float> stored = to_floats(*entry.dtype, bytes);  // (columns, rows)
  std::vector<float> values(static_cast<std::size_t>((end - begin) * columns));
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      values[static_cast<std::size_t>((row - begin) * columns + column)] =
          stored[static_cast<std::size_t>(column * tensor.rows + row)];
    }
  }
  return values;
}

// This rank's part of a parameter; padding stays 0.
std::vector<float> read_part(const SafetensorsSet& set,
                             const std::vector<HuggingFaceTensor>& tensors,
                             const Placement& placement) {
  const Shape& global = placement.global;
  const std::int64_t columns = global.rank() == 1 ? 1 : global.dim(1);
  std::vector<float> values(static_cast<std::size_t>(placement.numel()), 0.0f);
  for (const HuggingFaceTensor& tensor : tensors) {
    for (const HeldBox& held : placement.held_of({tensor.row_begin, 0, tensor.rows, columns})) {
      const std::int64_t begin = held.box.row;
      const std::vector<float> rows = read_rows(set, tensor, global, begin - tensor.row_begin,
                                                begin + held.box.rows - tensor.row_begin);
      each_stretch(held, columns, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
        std::copy_n(&rows[static_cast<std::size_t>(from - begin * columns)], count,
                    &values[static_cast<std::size_t>(to)]);
      });
    }
  }
  return values;
}

}  // namespace

void load_hugging_face(RankModel& model, const std::string& directory,
                       const std::atomic<bool>* stop) {
  const SafetensorsSet set(directory);
  for (const Bucket& bucket : model.buckets().buckets()) {
    for (const BucketEntry& entry : bucket.layout.entries) {
      if (stop != nullptr && stop->load()) return;
      const ParameterSpec& spec = entry.parameter->spec();
      const auto tensors =
          model.architecture().hugging_face(model.shape(), spec.name, spec.placement.global);
      const std::vector<float> values = read_part(set, tensors, spec.placement);
      const Tensor staged =
          model.context().from_host<float>(spec.placement.local(), values, Category::workspace);
      model.buckets().set(model.context(), *entry.parameter, staged);
    }
  }
}

}  // namespace trident

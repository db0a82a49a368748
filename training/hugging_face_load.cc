#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "core/error.h"
#include "training/hugging_face.h"
#include "training/hugging_face_check.h"
#include "training/safetensors.h"

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

// This rank's slice of a parameter; padding stays 0.
std::vector<float> read_slice(const SafetensorsSet& set,
                              const std::vector<HuggingFaceTensor>& tensors,
                              const ShardSpec& shard) {
  const Shape& global = shard.global;
  const std::int64_t columns = global.rank() == 1 ? 1 : global.dim(1);
  const bool by_columns = shard.sharded() && shard.dim == 1;
  std::vector<ShardSpec::Piece> rows = shard.pieces;
  if (!shard.sharded() || by_columns) rows = {{0, global.dim(0)}};
  const std::int64_t column_begin = by_columns ? shard.pieces.front().begin : 0;
  const std::int64_t local_columns = by_columns ? shard.pieces.front().count : columns;

  std::vector<float> values(static_cast<std::size_t>(shard.numel()), 0.0f);
  std::int64_t local_row = 0;
  for (const ShardSpec::Piece& piece : rows) {
    for (const HuggingFaceTensor& tensor : tensors) {
      const std::int64_t begin = std::max(piece.begin, tensor.row_begin);
      const std::int64_t end = std::min(piece.begin + piece.count, tensor.row_begin + tensor.rows);
      if (begin >= end) continue;
      const std::vector<float> part =
          read_rows(set, tensor, global, begin - tensor.row_begin, end - tensor.row_begin);
      for (std::int64_t row = begin; row < end; ++row) {
        std::memcpy(
            &values[static_cast<std::size_t>((local_row + row - piece.begin) * local_columns)],
            &part[static_cast<std::size_t>((row - begin) * columns + column_begin)],
            static_cast<std::size_t>(local_columns) * sizeof(float));
      }
    }
    local_row += piece.count;
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
          model.architecture().hugging_face(model.shape(), spec.name, spec.shard.global);
      const std::vector<float> values = read_slice(set, tensors, spec.shard);
      const Tensor staged =
          model.context().from_host<float>(spec.shard.local(), values, Category::workspace);
      model.buckets().set(model.context(), *entry.parameter, staged);
    }
  }
}

}  // namespace trident

#include "formats/hugging_face/weight_rows.h"

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "formats/hugging_face/hugging_face_check.h"

namespace trident {
namespace {

std::vector<float> to_floats(DType dtype, std::span<const std::byte> bytes) {
  if (!is_floating(dtype)) {
    throw RequestError("weights must be floating point, got " + std::string(name_of(dtype)));
  }
  std::vector<float> values(bytes.size() / size_of(dtype));
  with_element_type(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = static_cast<float>(value);
    }
  });
  return values;
}

}  // namespace

WeightRows::WeightRows(const SafetensorsSet& set, HuggingFaceTensor tensor, const Shape& global,
                       bool grown)
    : set_(set),
      tensor_(std::move(tensor)),
      found_(checked_tensor(set, tensor_, global, grown)),
      rows_(grown && !tensor_.transposed ? found_.entry->rows() : tensor_.rows),
      columns_(global.matrix_columns()) {}

TensorSlice WeightRows::slice() const {
  return {tensor_.row_begin, 0, rows_, columns_};
}

std::vector<float> WeightRows::read(std::int64_t begin, std::int64_t end) const {
  begin -= tensor_.row_begin;
  end -= tensor_.row_begin;
  if (!tensor_.transposed) {
    std::vector<std::byte> bytes(static_cast<std::size_t>((end - begin) * columns_) *
                                 size_of(*found_.entry->dtype));
    set_.read_rows(found_.entry->name, found_.row + begin, end - begin, bytes);
    return to_floats(*found_.entry->dtype, bytes);
  }
  std::vector<std::byte> bytes(found_.entry->bytes());
  set_.read(found_.entry->name, bytes);
  const std::vector<float> stored = to_floats(*found_.entry->dtype, bytes);  // (columns, rows)
  std::vector<float> values(static_cast<std::size_t>((end - begin) * columns_));
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t column = 0; column < columns_; ++column) {
      values[static_cast<std::size_t>((row - begin) * columns_ + column)] =
          stored[static_cast<std::size_t>(column * tensor_.rows + row)];
    }
  }
  return values;
}

}  // namespace trident

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

// A tensor of a Hugging Face directory, to be read as rows of a parameter.
class Rows {
 public:
  Rows(const SafetensorsSet& set, const HuggingFaceTensor& tensor, const Shape& global, bool grown)
      : set_(set),
        tensor_(tensor),
        entry_(set.at(checked_name(set, tensor, global, grown))),
        columns_(global.rank() == 1 ? 1 : global.dim(1)) {}

  // Of the whole parameter; fewer than it has where the vocabulary has grown.
  Box box() const {
    const std::int64_t rows = tensor_.transposed ? tensor_.rows : entry_.rows();
    return {tensor_.row_begin, 0, rows, columns_};
  }

  // Rows [begin, end) of our (rows, columns) view of the parameter.
  std::vector<float> read(std::int64_t begin, std::int64_t end) const {
    begin -= tensor_.row_begin;
    end -= tensor_.row_begin;
    if (!tensor_.transposed) {
      std::vector<std::byte> bytes(static_cast<std::size_t>((end - begin) * columns_) *
                                   size_of(*entry_.dtype));
      set_.read_rows(entry_.name, begin, end - begin, bytes);
      return to_floats(*entry_.dtype, bytes);
    }
    std::vector<std::byte> bytes(entry_.bytes());
    set_.read(entry_.name, bytes);
    const std::vector<float> stored = to_floats(*entry_.dtype, bytes);  // (columns, rows)
    std::vector<float> values(static_cast<std::size_t>((end - begin) * columns_));
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t column = 0; column < columns_; ++column) {
        values[static_cast<std::size_t>((row - begin) * columns_ + column)] =
            stored[static_cast<std::size_t>(column * tensor_.rows + row)];
      }
    }
    return values;
  }

 private:
  const SafetensorsSet& set_;
  const HuggingFaceTensor& tensor_;
  const SafetensorsEntry& entry_;
  std::int64_t columns_;
};

// This rank's part of a parameter, from its first element on; padding stays 0. `grown`: of the rows
// that are there alone.
std::vector<float> read_part(const SafetensorsSet& set,
                             const std::vector<HuggingFaceTensor>& tensors,
                             const Placement& placement, bool grown) {
  const Shape& global = placement.global;
  const std::int64_t columns = global.rank() == 1 ? 1 : global.dim(1);
  std::vector<float> values(static_cast<std::size_t>(grown ? 0 : placement.numel()), 0.0f);
  for (const HuggingFaceTensor& tensor : tensors) {
    const Rows stored(set, tensor, global, grown);
    for (const HeldBox& held : placement.held_of(stored.box())) {
      const std::int64_t begin = held.box.row;
      const std::vector<float> rows = stored.read(begin, begin + held.box.rows);
      each_stretch(held, columns, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
        const auto end = static_cast<std::size_t>(to + count);
        if (values.size() < end) values.resize(end);
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
  const CheckpointConfig& asked = model.config().checkpoint;
  SafetensorsSet set(directory);
  set.rename(asked.key_mapping);
  for (const Bucket& bucket : model.buckets().buckets()) {
    for (const BucketEntry& entry : bucket.layout.entries) {
      if (stop != nullptr && stop->load()) return;
      const ParameterSpec& spec = entry.parameter->spec();
      const Shape& global = spec.placement.global;
      const auto tensors = model.architecture().hugging_face(model.shape(), spec.name, global);
      const bool grown = asked.grow_vocabulary && is_of_vocabulary(spec.name);
      const std::vector<float> values = read_part(set, tensors, spec.placement, grown);
      if (values.empty()) continue;
      const Shape shape = grown ? Shape{std::ssize(values)} : spec.placement.local();
      const Tensor staged = model.context().from_host<float>(shape, values, Category::workspace);
      model.buckets().set(model.context(), *entry.parameter, staged);
    }
  }
}

}  // namespace trident

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/error.h"
#include "formats/hugging_face/hugging_face.h"
#include "formats/hugging_face/hugging_face_check.h"
#include "formats/hugging_face/safetensors.h"
#include "formats/hugging_face/weight_rows.h"

namespace trident {
namespace {

// This rank's part of a parameter, from its first element on; padding stays 0. `grown`: it ends
// with the last row that the file has.
std::vector<float> read_part(const SafetensorsSet& set,
                             const std::vector<HuggingFaceTensor>& tensors,
                             const Placement& placement, bool grown) {
  const Shape& global = placement.global;
  const std::int64_t columns = global.matrix_columns();
  std::vector<float> values(static_cast<std::size_t>(grown ? 0 : placement.numel()), 0.0f);
  for (const HuggingFaceTensor& tensor : tensors) {
    if (tensor.repeats) continue;
    const WeightRows stored(set, tensor, global, grown);
    for (const LocalSlice& held : placement.local_slices_of(stored.slice())) {
      const std::int64_t begin = held.slice.row;
      const std::vector<float> rows = stored.read(begin, begin + held.slice.rows);
      each_range(held, columns, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
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
  for (const Bucket& bucket : model.buckets().with_buffers()) {
    for (const BucketEntry& entry : bucket.layout.entries) {
      if (stop != nullptr && stop->load()) return;
      const ParameterSpec& spec = entry.parameter->spec();
      const Shape& global = spec.placement.global;
      const auto tensors =
          model.architecture().formats().hugging_face(model.shape(), spec.name, global);
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

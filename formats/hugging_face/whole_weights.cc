#include "formats/hugging_face/whole_weights.h"

#include <algorithm>

#include "engine/setup/from_config.h"
#include "formats/hugging_face/hugging_face_check.h"

namespace trident {
namespace {

void add(std::vector<WholeWeight>& list, const Architecture& architecture,
         const TransformerShape& shape, const Parameter& parameter) {
  const ParameterSpec& spec = parameter.spec();
  if (spec.placement.copy) return;
  const Shape& global = spec.placement.global;
  list.push_back({spec.name, global, architecture.formats().hugging_face(shape, spec.name, global),
                  spec.keeps_fp32, spec.role != ParameterRole::expert_bias});
}

}  // namespace

std::vector<WholeWeight> whole_weights(const Architecture& architecture,
                                       const TransformerShape& shape) {
  std::vector<WholeWeight> list;
  const auto chunks = build_chunks(architecture, shape, {}, {shape.layers}, {0});
  for (const auto& parameter : unique_parameters(chunks))
    add(list, architecture, shape, *parameter);
  return list;
}

std::vector<WholeWeight> whole_weights(const RankModel& model) {
  std::vector<WholeWeight> list;
  const ParallelContext parallel = parallel_context_of(
      model.config().parallel, model.config().activation_checkpointing, model.topology());
  for (int stage = 0; stage < model.total_stages(); ++stage) {
    const auto chunks = build_chunks(model.architecture(), model.shape(), parallel,
                                     model.config().pipeline.layer_split, {stage});
    for (const auto& parameter : unique_parameters(chunks)) {
      add(list, model.architecture(), model.shape(), *parameter);
    }
  }
  return list;
}

std::vector<TensorDeclaration> declarations(const std::vector<WholeWeight>& whole, DType dtype) {
  std::vector<TensorDeclaration> list;
  for (const WholeWeight& weight : whole) {
    for (const HuggingFaceTensor& tensor : weight.tensors) {
      list.push_back({tensor.name, weight.keeps_fp32 ? DType::f32 : dtype,
                      stored_shape(tensor, weight.shape)});
    }
  }
  return list;
}

void add_weight(PortionList& list, const std::vector<WholeWeight>& whole,
                const SafetensorsSetLayout& layout, const StateTensor& state, const Share& share) {
  const auto weight = std::ranges::find(whole, state.parameter->name(), &WholeWeight::name);
  const std::int64_t columns = weight->shape.matrix_columns();
  for (const HuggingFaceTensor& target : weight->tensors) {
    if (target.repeats) continue;
    const auto position = [&](const std::string& name) { return layout.places.find(name)->second; };
    const SafetensorsSetLayout::Place at = position(target.name);
    FilePlace place{.file = at.file,
                    .offset = at.offset,
                    .row = target.row_begin,
                    .pitch = target.transposed ? target.rows : columns,
                    .transposed = target.transposed};
    for (const HuggingFaceTensor& other : weight->tensors) {
      if (!other.repeats) continue;
      const SafetensorsSetLayout::Place again = position(other.name);
      place.repeated.emplace_back(again.file, again.offset);
    }
    for (LocalSlice held : state.placement.slices(state.begin, state.tensor.numel())) {
      TensorSlice& slice = held.slice;
      std::int64_t first = std::max(slice.row, target.row_begin);
      std::int64_t end = std::min(slice.row + slice.rows, target.row_begin + target.rows);
      if (first >= end) continue;
      if (target.transposed) {
        const std::int64_t from = share.edge(share.part, slice.columns);
        slice.columns = share.edge(share.part + 1, slice.columns) - from;
        slice.column += from;
        held.local += from;
      } else {
        const std::int64_t rows = end - first;
        end = first + share.edge(share.part + 1, rows);
        first += share.edge(share.part, rows);
      }
      held.local += (first - slice.row) * held.stride;
      slice.row = first;
      slice.rows = end - first;
      if (slice.rows > 0 && slice.columns > 0) list.add(state, held, place);
    }
  }
}

}  // namespace trident

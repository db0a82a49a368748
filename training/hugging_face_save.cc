#include <cstring>
#include <span>

#include "core/error.h"
#include "core/file.h"
#include "kernels/elementwise.h"
#include "training/hugging_face.h"
#include "training/safetensors.h"
#include "training/weights_folder.h"

namespace trident {
namespace {

// One parameter of the whole model: who holds it and how each tensor rank's slice lies.
struct GlobalParameter {
  std::string name;
  int pipeline_rank = 0;
  std::vector<Placement> parts;  // by tensor rank; one where it isn't cut
  std::vector<HuggingFaceTensor> tensors;
};

std::vector<GlobalParameter> global_parameters(const RankModel& model) {
  const Schedule& schedule = model.schedule();
  std::vector<GlobalParameter> list;
  for (int stage = 0; stage < schedule.total_stages(); ++stage) {
    const std::size_t first = list.size();
    for (int rank = 0; rank < model.topology().tensor.size(); ++rank) {
      const TensorParallel parallel{.rank = rank,
                                    .size = model.topology().tensor.size(),
                                    .sequence_parallel = model.config().parallel.sequence_parallel};
      const auto chunks = build_chunks(model.architecture(), model.shape(), parallel,
                                       model.config().pipeline.layer_split, {stage});
      std::size_t at = first;
      for (const auto& parameter : unique_parameters(chunks)) {
        const ParameterSpec& spec = parameter->spec();
        if (spec.placement.copy) continue;
        if (rank == 0) {
          list.push_back({spec.name, schedule.rank_of_stage(stage), {}, {}});
          list.back().tensors =
              model.architecture().hugging_face(model.shape(), spec.name, spec.placement.global);
        }
        if (spec.placement.speaks(Group::tensor, rank)) list[at].parts.push_back(spec.placement);
        ++at;
      }
    }
  }
  return list;
}

std::vector<std::int64_t> file_shape(const HuggingFaceTensor& tensor, const Shape& global) {
  if (global.rank() == 1) return {tensor.rows};
  if (tensor.transposed) return {global.dim(1), tensor.rows};
  return {tensor.rows, global.dim(1)};
}

// Copies one rank's part into the whole tensor.
void place(const Placement& part, std::size_t element, std::span<const std::byte> local,
           std::span<std::byte> whole) {
  const std::int64_t columns = part.global.rank() == 1 ? 1 : part.global.dim(1);
  for (const HeldBox& held : part.boxes()) {
    each_stretch(held, columns, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
      std::memcpy(&whole[static_cast<std::size_t>(to) * element],
                  &local[static_cast<std::size_t>(from) * element],
                  static_cast<std::size_t>(count) * element);
    });
  }
}

std::vector<std::byte> transposed(std::span<const std::byte> in, std::int64_t rows,
                                  std::int64_t columns, std::size_t element) {
  std::vector<std::byte> out(in.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      std::memcpy(out.data() + static_cast<std::size_t>(column * rows + row) * element,
                  in.data() + static_cast<std::size_t>(row * columns + column) * element, element);
    }
  }
  return out;
}

// Brings every parameter's `pick`ed tensor to world rank 0, one after the other, and gives it there
// to `write(HuggingFaceTensor, bytes in the file's order)`. `weights`: pick reads the weight. Ranks
// meet in `files`, a patient group, before each parameter: until rank 0 has written the last one
// nobody waits where the time is limited.
template <class Pick, class Write>
void collect(RankModel& model, const ProcessGroup& files,
             const std::vector<GlobalParameter>& parameters, DType dtype, bool weights,
             const Pick& pick, const Write& write) {
  Context& context = model.context();
  const Topology& topology = model.topology();
  std::map<std::string, std::shared_ptr<Parameter>> mine;
  for (const Bucket& bucket : model.buckets().buckets()) {
    for (const BucketEntry& entry : bucket.layout.entries) {
      if (!entry.parameter->spec().placement.copy) mine[entry.parameter->name()] = entry.parameter;
    }
  }
  const std::size_t element = size_of(dtype);
  const int here = topology.world.rank();
  WeightGathering& gathering = model.weights();
  std::vector<std::size_t> held;
  for (const GlobalParameter& parameter : parameters) {
    files.barrier(context);
    if (weights && parameter.pipeline_rank == topology.pipeline.rank()) {
      // Next to each other in a bucket, they are gathered once.
      const auto needed = gathering.buckets_of({mine.at(parameter.name)});
      gathering.hold(context, needed);
      gathering.release(std::exchange(held, needed));
    }
    const Shape& global = parameter.parts.front().global;
    std::vector<std::byte> whole(here == 0 ? static_cast<std::size_t>(global.numel()) * element
                                           : 0);
    for (std::size_t t = 0; t < parameter.parts.size(); ++t) {
      const int source =
          topology.mesh.moved(topology.mesh.moved(0, Group::tensor, static_cast<int>(t)),
                              Group::pipeline, parameter.pipeline_rank);
      Tensor local;
      if (here == source) local = pick(*mine.at(parameter.name));
      if (here == source && source != 0) topology.world.send(context, local, 0);
      if (here == 0 && source != 0) {
        local = context.empty(parameter.parts[t].local(), dtype, Category::workspace);
        topology.world.receive(context, local, source);
      }
      if (here == 0) place(parameter.parts[t], element, context.to_host<std::byte>(local), whole);
    }
    if (here != 0) continue;
    const std::int64_t columns = global.rank() == 1 ? 1 : global.dim(1);
    for (const HuggingFaceTensor& tensor : parameter.tensors) {
      const auto part =
          std::span(whole).subspan(static_cast<std::size_t>(tensor.row_begin * columns) * element,
                                   static_cast<std::size_t>(tensor.rows * columns) * element);
      if (tensor.transposed) {
        write(tensor, transposed(part, tensor.rows, columns, element));
      } else {
        write(tensor, std::vector<std::byte>(part.begin(), part.end()));
      }
    }
  }
  gathering.release(held);
  context.synchronize();
}

std::vector<TensorDeclaration> declarations(const std::vector<GlobalParameter>& parameters,
                                            DType dtype) {
  std::vector<TensorDeclaration> list;
  for (const GlobalParameter& parameter : parameters) {
    for (const HuggingFaceTensor& tensor : parameter.tensors) {
      list.push_back({tensor.name, dtype, file_shape(tensor, parameter.parts.front().global)});
    }
  }
  return list;
}

}  // namespace

void save_hugging_face(RankModel& model, const ProcessGroup& files, const std::string& directory,
                       const HuggingFaceExtras& extras) {
  const auto parameters = global_parameters(model);
  const DType dtype = model.shape().dtype;
  std::unique_ptr<NewWeights> folder;
  std::unique_ptr<SafetensorsSetWriter> writer;
  if (model.topology().world.rank() == 0) {
    folder = std::make_unique<NewWeights>(directory);
    // Before the weights: what is small and fails has cost nothing.
    for (const auto& [name, contents] : extras.files) {
      write_file_atomic(folder->path() + "/" + name, contents);
    }
    std::map<std::string, std::string> metadata;
    if (model.schedule().asynchronous()) {  // all stages have had as many updates
      metadata["weight_version"] = std::to_string(model.weight_version());
    }
    writer =
        std::make_unique<SafetensorsSetWriter>(folder->path(), declarations(parameters, dtype),
                                               std::uint64_t{5} * 1000 * 1000 * 1000, metadata);
  }
  collect(
      model, files, parameters, dtype, true, [](const Parameter& p) { return p.weight(); },
      [&](const HuggingFaceTensor& tensor, const std::vector<std::byte>& bytes) {
        writer->write(tensor.name, bytes);
      });
  if (writer) {
    writer->finish();
    if (!extras.run_id.empty()) folder->sign(extras.run_id);
    write_file_atomic(
        folder->path() + "/config.json",
        with_extras(model.architecture().hugging_face_config(model.config()), extras));
    folder->commit();
  }
  files.barrier(model.context());
}

std::string save_gradients(RankModel& model, const ProcessGroup& files, const std::string& path) {
  const auto parameters = global_parameters(model);
  std::unique_ptr<SafetensorsWriter> writer;
  // The others go on sending, whatever becomes of the file.
  std::string failure;
  const auto attempt = [&](const auto& action) {
    if (!failure.empty()) return;
    try {
      action();
    } catch (const std::exception& error) {
      failure = error.what();
      writer.reset();
    }
  };
  const bool writes = model.topology().world.rank() == 0;
  if (writes) {
    attempt([&] {
      writer = std::make_unique<SafetensorsWriter>(path, declarations(parameters, DType::f32));
    });
  }
  collect(
      model, files, parameters, DType::f32, false,
      [&](const Parameter& p) {
        const Tensor& gradient = p.gradient(0);
        if (gradient.dtype() == DType::f32 && model.gradient_scale() == 1) return gradient;
        Context& context = model.context();
        Tensor values = context.empty(gradient.shape(), DType::f32, Category::workspace);
        copy(context, gradient, values);
        scale(context, values, static_cast<float>(1 / model.gradient_scale()));
        return values;
      },
      [&](const HuggingFaceTensor& tensor, const std::vector<std::byte>& bytes) {
        attempt([&] { writer->write(tensor.name, bytes); });
      });
  if (writes) attempt([&] { writer->finish(); });
  files.barrier(model.context());
  return failure;
}

}  // namespace trident

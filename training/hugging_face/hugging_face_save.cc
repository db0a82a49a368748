#include <cstring>
#include <span>

#include "core/error.h"
#include "core/file.h"
#include "kernels/elementwise.h"
#include "training/hugging_face/hugging_face.h"
#include "training/hugging_face/safetensors.h"
#include "training/hugging_face/weights_folder.h"
#include "training/setup/from_config.h"

namespace trident {
namespace {

// One parameter of the whole model: who holds it and how each tensor rank's slice lies.
struct GlobalParameter {
  std::string name;
  std::vector<Placement> parts;  // by tensor rank; one where it isn't cut
  std::vector<HuggingFaceTensor> tensors;
};

std::vector<GlobalParameter> global_parameters(const RankModel& model) {
  std::vector<GlobalParameter> list;
  TensorParallel parallel = tensor_parallel_of(model.config(), model.topology());
  for (int stage = 0; stage < model.total_stages(); ++stage) {
    const std::size_t first = list.size();
    for (parallel.rank = 0; parallel.rank < parallel.size; ++parallel.rank) {
      const auto chunks = build_chunks(model.architecture(), model.shape(), parallel,
                                       model.config().pipeline.layer_split, {stage});
      std::size_t at = first;
      for (const auto& parameter : unique_parameters(chunks)) {
        const ParameterSpec& spec = parameter->spec();
        if (spec.placement.copy) continue;
        if (parallel.rank == 0) {
          list.push_back({spec.name, {}, {}});
          list.back().tensors =
              model.architecture().hugging_face(model.shape(), spec.name, spec.placement.global);
        }
        if (spec.placement.speaks([&](Group) { return parallel.rank; }))
          list[at].parts.push_back(spec.placement);
        ++at;
      }
    }
  }
  return list;
}

// The part that a world rank holds.
const Placement& part_of(const GlobalParameter& parameter, const Mesh& mesh, int rank) {
  for (const auto& cut : parameter.parts.front().cuts) {
    if (cut) return parameter.parts[static_cast<std::size_t>(mesh.place(rank, cut->group))];
  }
  return parameter.parts.front();
}

std::vector<std::int64_t> file_shape(const HuggingFaceTensor& tensor, const Shape& global) {
  if (global.rank() == 1) return {tensor.rows};
  if (tensor.transposed) return {global.dim(1), tensor.rows};
  return {tensor.rows, global.dim(1)};
}

// Copies `local`, elements of a rank's part from `begin` on, into the whole tensor.
void place(const Placement& part, std::size_t element, std::int64_t begin,
           std::span<const std::byte> local, std::span<std::byte> whole) {
  const std::int64_t columns = part.global.rank() == 1 ? 1 : part.global.dim(1);
  const auto count = static_cast<std::int64_t>(local.size() / element);
  for (const HeldBox& held : part.boxes(begin, count)) {
    each_stretch(held, columns, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
      std::memcpy(&whole[static_cast<std::size_t>(to) * element],
                  &local[static_cast<std::size_t>(from - begin) * element],
                  static_cast<std::size_t>(n) * element);
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

// The elements of each parameter for which each rank speaks, by world rank and parameter: their
// begin and count, one after the other.
std::vector<std::int64_t> stretches_of_all(Context& context, const ProcessGroup& world,
                                           const std::vector<const StateTensor*>& own) {
  std::vector<std::int64_t> mine;
  for (const StateTensor* tensor : own) {
    mine.push_back(tensor != nullptr ? tensor->begin : 0);
    mine.push_back(tensor != nullptr ? tensor->tensor.numel() : 0);
  }
  const std::int64_t count = std::ssize(mine);
  const Tensor sent = context.from_host<std::int64_t>({count}, mine, Category::workspace);
  const Tensor all = context.empty({count * world.size()}, DType::i64, Category::workspace);
  world.all_gather(context, sent, all);
  return context.to_host<std::int64_t>(all);
}

// Brings this state of every parameter to world rank 0, one after the other, as `dtype` (by
// `convert`), and gives it there to `write(HuggingFaceTensor, bytes in the file's order)`. Ranks
// meet in `files`, a patient group, before each parameter: until rank 0 has written the last one
// nobody waits where the time is limited.
template <class Convert, class Write>
void collect(RankModel& model, const ProcessGroup& files, StateKind kind,
             const std::vector<GlobalParameter>& parameters, DType dtype, const Convert& convert,
             const Write& write) {
  Context& context = model.context();
  const Topology& topology = model.topology();
  State state;
  model.buckets().list(kind, topology, state);
  std::map<std::string, const StateTensor*> mine;
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.holder.speaks()) mine[tensor.parameter->name()] = &tensor;
  }
  const std::size_t element = size_of(dtype);
  const int here = topology.world.rank();
  std::vector<const StateTensor*> owned;
  for (const GlobalParameter& parameter : parameters) {
    const auto found = mine.find(parameter.name);
    owned.push_back(found == mine.end() ? nullptr : found->second);
  }
  files.barrier(context);  // rank 0 has opened its files
  const std::vector<std::int64_t> stretches = stretches_of_all(context, topology.world, owned);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const GlobalParameter& parameter = parameters[i];
    const StateTensor* own = owned[i];
    files.barrier(context);
    Tensor local = own != nullptr ? convert(own->tensor) : Tensor();
    if (here != 0) {
      if (local.defined() && local.numel() > 0) topology.world.send(context, local, 0);
      continue;
    }
    const Shape& global = parameter.parts.front().global;
    std::vector<std::byte> whole(static_cast<std::size_t>(global.numel()) * element);
    for (int source = 0; source < topology.world.size(); ++source) {
      const std::size_t at = 2 * (static_cast<std::size_t>(source) * parameters.size() + i);
      const std::int64_t begin = stretches[at], count = stretches[at + 1];
      if (count == 0) continue;
      if (source != 0) {
        local = context.empty({count}, dtype, Category::workspace);
        topology.world.receive(context, local, source);
      }
      place(part_of(parameter, topology.mesh, source), element, begin,
            context.to_host<std::byte>(local), whole);
    }
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
    if (model.stash() != nullptr) {  // all stages have had as many updates
      metadata["weight_version"] = std::to_string(model.stash()->live());
    }
    writer = std::make_unique<SafetensorsSetWriter>(folder->path(), declarations(parameters, dtype),
                                                    usual_shard_bytes, metadata);
  }
  collect(
      model, files, StateKind::weight, parameters, dtype,
      [](const Tensor& weight) { return weight; },
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

std::string save_gradients(const Stepper& stepper, const ProcessGroup& files,
                           const std::string& path) {
  RankModel& model = stepper.model();
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
      model, files, StateKind::gradient, parameters, DType::f32,
      [&](const Tensor& gradient) {
        if (gradient.dtype() == DType::f32 && stepper.gradient_scale() == 1) return gradient;
        Context& context = model.context();
        Tensor values = context.empty(gradient.shape(), DType::f32, Category::workspace);
        copy(context, gradient, values);
        scale(context, values, static_cast<float>(1 / stepper.gradient_scale()));
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

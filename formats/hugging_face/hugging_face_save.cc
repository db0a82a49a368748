#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/files/file.h"
#include "formats/hugging_face/hugging_face.h"
#include "formats/hugging_face/portions.h"
#include "formats/hugging_face/safetensors.h"
#include "formats/hugging_face/weights_folder.h"
#include "formats/hugging_face/whole_weights.h"
#include "kernels/elementwise.h"

namespace trident {
namespace {

// Sends the portions of all ranks to world rank 0, which passes them to `write(Portion)`. It works
// in turns of one portion per rank. Before each turn the ranks meet at a barrier in `files`, a
// group without time-out, so that no rank waits for rank 0's disk in a group with one.
template <class Write>
void gather(Context& context, const ProcessGroup& world, const ProcessGroup& files,
            PortionList& list, const Write& write) {
  constexpr int lead = 0;
  while (true) {
    files.barrier(context);
    std::optional<Portion> own = list.next(context);
    std::vector<std::int64_t> places;
    if (own) {
      for (const FileWrite& one : own->writes) {
        for (const std::uint64_t value : {std::uint64_t{one.file}, one.offset,
                                          std::uint64_t{one.begin}, std::uint64_t{one.count}}) {
          places.push_back(static_cast<std::int64_t>(value));
        }
      }
    }
    const std::array<std::int64_t, 2> sizes{std::ssize(places), own ? std::ssize(own->bytes) : 0};
    const Tensor sent = context.from_host<std::int64_t>({2}, sizes, Category::workspace);
    const Tensor all = context.empty({2 * world.size()}, DType::i64, Category::workspace);
    world.all_gather(context, sent, all);
    const std::vector<std::int64_t> all_sizes = context.to_host<std::int64_t>(all);
    if (std::ranges::all_of(all_sizes, [](std::int64_t size) { return size == 0; })) break;
    if (world.rank() != lead) {
      if (!own) continue;
      world.send(context, context.from_host<std::int64_t>({sizes[0]}, places, Category::workspace),
                 lead);
      Tensor bytes = context.empty({sizes[1]}, DType::u8, Category::workspace);
      context.copy_from_host(bytes, own->bytes);
      world.send(context, bytes, lead);
      continue;
    }
    if (own) write(*own);
    for (int source = 1; source < world.size(); ++source) {
      const std::int64_t count = all_sizes[2 * static_cast<std::size_t>(source)];
      if (count == 0) continue;
      const Tensor where = context.empty({count}, DType::i64, Category::workspace);
      const Tensor what = context.empty({all_sizes[2 * static_cast<std::size_t>(source) + 1]},
                                        DType::u8, Category::workspace);
      world.receive(context, where, source);
      world.receive(context, what, source);
      Portion portion{ByteBuffer(static_cast<std::size_t>(what.bytes())), {}};
      context.copy_to_host(portion.bytes, what);
      const auto numbers = context.to_host<std::uint64_t>(where);
      for (std::size_t i = 0; i < numbers.size(); i += 4) {
        portion.writes.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]});
      }
      write(portion);
    }
  }
}

// The portions of a state of all weights that this rank sends.
PortionList portions(RankModel& model, StateKind kind, const std::vector<WholeWeight>& whole,
                     const SafetensorsSetLayout& layout, PortionList::Convert convert = {}) {
  State state;
  model.buckets().append_state(kind, model.topology(), state);
  PortionList list(std::move(convert));
  for (const StateTensor& tensor : state.tensors) {
    if (!tensor.holder.is_primary()) continue;
    add_weight(list, whole, layout, tensor);
  }
  return list;
}

}  // namespace

void save_hugging_face(RankModel& model, const ProcessGroup& files, const std::string& directory,
                       const HuggingFaceExtras& extras) {
  const std::vector<WholeWeight> whole = whole_weights(model);
  std::map<std::string, std::string> metadata;
  if (model.stash() != nullptr) {  // all stages have had the same number of updates
    metadata["weight_version"] = std::to_string(model.stash()->live());
  }
  const SafetensorsSetLayout layout =
      lay_out_set(declarations(whole, model.shape().dtype), usual_shard_bytes, metadata, directory);
  std::unique_ptr<NewWeights> folder;
  std::unique_ptr<SafetensorsSetWriter> writer;
  if (model.topology().world.rank() == 0) {
    folder = std::make_unique<NewWeights>(directory);
    // They precede the weights: a small file that fails costs no time.
    for (const auto& [name, contents] : extras.files) {
      write_file_atomic(folder->path() + "/" + name, contents);
    }
    writer = std::make_unique<SafetensorsSetWriter>(folder->path(), layout);
  }
  PortionList list = portions(model, StateKind::weight, whole, layout);
  gather(model.context(), model.topology().world, files, list, [&](const Portion& portion) {
    const std::span<const std::byte> bytes = portion.bytes;
    for (const FileWrite& one : portion.writes) {
      writer->write_at(one.file, one.offset, bytes.subspan(one.begin, one.count));
    }
  });
  if (writer) {
    writer->finish();
    if (!extras.run_id.empty()) folder->sign(extras.run_id);
    write_file_atomic(
        folder->path() + "/config.json",
        with_extras(model.architecture().formats().hugging_face_config(model.config()), extras));
    folder->commit();
  }
  files.barrier(model.context());
}

std::string save_gradients(const Stepper& stepper, const ProcessGroup& files,
                           const std::string& path) {
  RankModel& model = stepper.model();
  Context& context = model.context();
  std::vector<WholeWeight> whole = whole_weights(model);
  std::erase_if(whole, [](const WholeWeight& one) { return !one.has_gradient; });
  for (WholeWeight& one : whole) std::erase_if(one.tensors, &HuggingFaceTensor::repeats);
  // A single file, whatever its name.
  const SafetensorsSetLayout layout =
      lay_out_set(declarations(whole, DType::f32), UINT64_MAX, {}, path);
  std::unique_ptr<SafetensorsWriter> writer;
  // If the file fails, the other ranks continue to send.
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
    attempt(
        [&] { writer = std::make_unique<SafetensorsWriter>(path, layout.files.front().layout); });
  }
  PortionList list =
      portions(model, StateKind::gradient, whole, layout, [&](const Tensor& gradient) {
        if (gradient.dtype() == DType::f32 && stepper.gradient_scale() == 1) return gradient;
        Tensor values = context.empty(gradient.shape(), DType::f32, Category::workspace);
        copy(context, gradient, values);
        scale(context, values, static_cast<float>(1 / stepper.gradient_scale()));
        return values;
      });
  gather(context, model.topology().world, files, list, [&](const Portion& portion) {
    const std::span<const std::byte> bytes = portion.bytes;
    attempt([&] {
      for (const FileWrite& one : portion.writes) {
        writer->write_at(one.offset, bytes.subspan(one.begin, one.count));
      }
    });
  });
  if (writes) attempt([&] { writer->finish(); });
  files.barrier(context);
  return failure;
}

}  // namespace trident
